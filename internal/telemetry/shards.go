package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"millrace/internal/ingest"
)

// maxShards is the maximum number of streams with their own series and with rows on the page. These are the streams with the most lag. A
// series for each of a thousand streams would need much of Prometheus's memory.
const maxShards = 10

// JobShard is a stream of a worker that has several.
type JobShard struct {
	Stream  string `json:"stream"`
	Waiting uint64 `json:"waiting"` // messages that no worker has acknowledged
	Stalled int    `json:"stalled"` // consumers that deliver nothing although they have messages
}

// WatchShards makes every scrape report the number of streams, and the lag of those with the most lag. read returns all streams, those with
// the most lag first.
func (m *Metrics) WatchShards(read func() []ingest.ShardStatus) {
	m.watch("shards", "Input streams that this worker has a shard for.", func() int { return len(read()) })
	pending := prometheus.NewDesc(namespace+"_shard_pending", "Messages of a stream that its consumers have not delivered yet. Only the ten streams with the most lag have it.", []string{"stream"}, nil)
	unacknowledged := prometheus.NewDesc(namespace+"_shard_ack_pending", "Messages of a stream that are delivered to any worker and not yet acknowledged. Only the ten streams with the most lag have it.", []string{"stream"}, nil)
	m.registry.MustRegister(prometheus.CollectorFunc(func(out chan<- prometheus.Metric) {
		all := read()
		for _, s := range all[:min(len(all), maxShards)] {
			out <- prometheus.MustNewConstMetric(pending, prometheus.GaugeValue, float64(s.Pending), s.Stream)
			out <- prometheus.MustNewConstMetric(unacknowledged, prometheus.GaugeValue, float64(s.Unacknowledged), s.Stream)
		}
	}))
}

// JobShards returns the rows of the page for streams, those with the most lag first. It returns nil for a single stream.
func JobShards(all []ingest.ShardStatus) (rows []JobShard) {
	if len(all) < 2 {
		return nil
	}
	for _, s := range all[:min(len(all), maxShards)] {
		rows = append(rows, JobShard{s.Stream, s.Lag(), s.Stalled})
	}
	return rows
}
