package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"millrace/internal/ingest"
)

// stateMetrics holds the metrics of the states of a stateful operator. They have no label for the partition, because a worker may own
// hundreds of them.
type stateMetrics struct {
	logged, replayed, failed prometheus.Counter

	limit int64
	read  atomic.Pointer[func() ingest.StateFigures] // nil without a stateful operator
}

func newStateMetrics(f promauto.Factory) *stateMetrics {
	return &stateMetrics{
		logged:   f.NewCounter(prometheus.CounterOpts{Name: "state_log_bytes_total", Help: "Bytes that were stored in logs of states."}),
		replayed: f.NewCounter(prometheus.CounterOpts{Name: "state_replayed_bytes_total", Help: "Bytes that were read from logs of states, to take partitions over and to keep copies."}),
		failed:   f.NewCounter(prometheus.CounterOpts{Name: "state_log_trim_failures_total", Help: "Failed attempts to remove old entries from logs of states. If they continue, the result stream fills."}),
	}
}

// States describes the states of the partitions that a worker owns.
type States struct {
	Partitions int     `json:"partitions"` // partitions that the worker owns and whose state is in memory
	Waiting    int     `json:"waiting"`    // partitions that the worker should own, but whose state doesn't fit into memory
	Records    uint64  `json:"records"`    // records in the states
	Bytes      int64   `json:"bytes"`      // memory of the states
	Log        int64   `json:"log"`        // size of their logs in the result stream, in bytes
	Limit      int64   `json:"limit"`      // maximum memory for states, in bytes
	Load       float64 `json:"load"`       // records of the fullest young generation as a share of the records of a generation, 0 to 1
	Generation uint64  `json:"generation"` // highest number of a young generation
	First      uint64  `json:"first"`      // records decided since the start that depend on no earlier record
	Duplicate  uint64  `json:"duplicate"`  // records decided since the start that depend on an earlier record
}

// WatchStates registers the metrics of states, which each scrape reads. limit is the maximum memory for states in bytes. Call it once, if
// an operator is stateful.
func (m *Metrics) WatchStates(limit int64, read func() ingest.StateFigures) {
	m.states.limit = limit
	m.states.read.Store(&read)
	gauge := func(name, help string, value func(States) float64) {
		m.factory.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(*m.States()) })
	}
	gauge("state_partitions", "Partitions with a state that this worker owns.", func(s States) float64 { return float64(s.Partitions) })
	gauge("state_waiting_partitions", "Partitions that this worker should own but has no memory for. Their inputs wait.", func(s States) float64 { return float64(s.Waiting) })
	gauge("state_records", "Records in the states of this worker's partitions.", func(s States) float64 { return float64(s.Records) })
	gauge("state_bytes", "Memory of the states of this worker's partitions.", func(s States) float64 { return float64(s.Bytes) })
	gauge("state_log_size_bytes", "Bytes in the logs of the states of this worker's partitions. Logs of more than two generations have entries that can't be removed.",
		func(s States) float64 { return float64(s.Log) })
	gauge("state_limit_bytes", "Maximum memory for states, of all devices together (MILLRACE_STATE_BYTES).", func(s States) float64 { return float64(s.Limit) })
	gauge("state_load", "Records of the fullest young generation as a share of the records of a generation, 0 to 1. At 1, the next record begins a new generation.", func(s States) float64 { return s.Load })
	gauge("state_generation", "Highest number of a young generation, from 0. When it grows beyond 1, a state has dropped its oldest records.", func(s States) float64 { return float64(s.Generation) })
	decisions := func(outcome string, value func(States) uint64) {
		m.factory.NewCounterFunc(prometheus.CounterOpts{
			Name: "state_decisions_total", Help: "Records that a state has decided on, by outcome. A duplicate depends on an earlier record.",
			ConstLabels: prometheus.Labels{"outcome": outcome},
		}, func() float64 { return float64(value(*m.States())) })
	}
	decisions("first", func(s States) uint64 { return s.First })
	decisions("duplicate", func(s States) uint64 { return s.Duplicate })
}

// States returns the statistics of the states, or nil without a stateful operator.
func (m *Metrics) States() *States {
	read := m.states.read.Load()
	if read == nil {
		return nil
	}
	figures := (*read)()
	all := &States{
		Partitions: len(figures.Owned), Waiting: figures.Waiting, Log: figures.LogBytes, Limit: m.states.limit, First: figures.Decided - figures.Hits, Duplicate: figures.Hits,
	}
	for _, one := range figures.Owned {
		all.Records += one.Records
		all.Bytes += one.Bytes
		all.Load = max(all.Load, one.Load)
		all.Generation = max(all.Generation, one.Generation)
	}
	return all
}

// StateLogged implements ingest.Observer.
func (m *Metrics) StateLogged(bytes int) { m.states.logged.Add(float64(bytes)) }

// StateReplayed implements ingest.Observer.
func (m *Metrics) StateReplayed(bytes int) { m.states.replayed.Add(float64(bytes)) }

// StateTrimFailed implements ingest.Observer.
func (m *Metrics) StateTrimFailed() { m.states.failed.Inc() }
