package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"millrace/internal/ingest/inflight"
	"millrace/internal/record"
)

// frameMetrics holds the metrics of messages that are split into records or decompressed.
type frameMetrics struct {
	records                  [record.Statuses]prometheus.Counter
	perFrame                 prometheus.Histogram
	parts                    prometheus.Counter
	compressed, decompressed prometheus.Counter
	decompressing, splitting prometheus.Counter
}

func newFrameMetrics(f promauto.Factory) (m frameMetrics) {
	records := f.NewCounterVec(prometheus.CounterOpts{Name: "records_total", Help: "Records of frames whose results are stored, by outcome. All outcomes but ok and null also have dead letters. Messages that are not frames do not count."}, []string{"outcome"})
	for s := range record.Status(record.Statuses) {
		m.records[s] = records.WithLabelValues(s.String())
	}
	m.perFrame = f.NewHistogram(prometheus.HistogramOpts{Name: "frame_records", Help: "Records in a frame whose result is stored.", Buckets: frameRecordBuckets})
	m.parts = f.NewCounter(prometheus.CounterOpts{Name: "frame_result_parts_total", Help: "Messages in which results of frames are stored: one for each frame, more if a result exceeds the server's max_payload or the result stream's max_msg_size."})
	bytes := f.NewCounterVec(prometheus.CounterOpts{Name: "decompression_bytes_total", Help: "Bytes of compressed messages whose results are stored, before (in) and after (out) decompression."}, []string{"direction"})
	m.compressed, m.decompressed = bytes.WithLabelValues("in"), bytes.WithLabelValues("out")
	seconds := f.NewCounterVec(prometheus.CounterOpts{Name: "unpack_seconds_total", Help: "Time that goroutines spent on unpacking messages whose results are stored: decompressing them, and finding their records."}, []string{"step"})
	m.decompressing, m.splitting = seconds.WithLabelValues("decompress"), seconds.WithLabelValues("split")
	return m
}

// Frame implements ingest.Observer.
func (m *Metrics) Frame(s inflight.FrameStats) {
	f := &m.frames
	f.compressed.Add(float64(s.Compressed))
	f.decompressed.Add(float64(s.Decompressed))
	f.decompressing.Add(s.Decompressing.Seconds())
	f.splitting.Add(s.Splitting.Seconds())
	if !s.Framed {
		return // a compressed message of one record
	}
	records := 0
	for status, n := range s.Records {
		f.records[status].Add(float64(n))
		records += n
	}
	m.job.framed.Add(int64(records) - 1)
	f.perFrame.Observe(float64(records))
	f.parts.Add(float64(s.Parts))
}
