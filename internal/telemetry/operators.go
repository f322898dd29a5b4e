package telemetry

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"millrace/internal/ingest/inflight"
)

// operatorMetrics are the metrics of the operators that the worker runs.
//
// A process that loses its device ends before anybody can scrape the count of that. So the time of the third-last fault is exported
// too: the worker learns from the consumer's metadata what earlier processes observed. An alert compares that time with its window.
type operatorMetrics struct {
	faults *prometheus.CounterVec
	third  *prometheus.GaugeVec

	mu     sync.Mutex
	latest map[string][]time.Time // by operator: times of the latest faults, in order, at most remembered
}

// remembered is the number of an operator's faults of which the times are kept. The alert reports an operator that was to blame that
// many times.
const remembered = 3

func newOperatorMetrics(f promauto.Factory) operatorMetrics {
	return operatorMetrics{
		faults: f.NewCounterVec(prometheus.CounterOpts{Name: "operator_faults_total", Help: "Failures that an operator is to blame for, as far as this process observed them."}, []string{"operator", "fault"}),
		third:  f.NewGaugeVec(prometheus.GaugeOpts{Name: "operator_third_last_fault_timestamp_seconds", Help: "When the third-last failure that an operator is to blame for was observed, in seconds since 1970, also if an earlier process observed it; 0 if there were fewer."}, []string{"operator"}),
		latest: map[string][]time.Time{},
	}
}

// AddOperators registers the metrics of operators with these names, with value zero. Faults of other operators aren't counted.
func (m *Metrics) AddOperators(names []string) {
	o := &m.operators
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		if _, known := o.latest[name]; known {
			continue // of another device's pipeline
		}
		o.latest[name] = nil
		o.third.WithLabelValues(name).Set(0)
		for _, fault := range inflight.Faults() {
			o.faults.WithLabelValues(name, fault)
		}
	}
}

// OperatorFault implements ingest.Observer. A fault that was reported before, with the same time, counts once.
func (m *Metrics) OperatorFault(f inflight.OperatorFault) {
	o := &m.operators
	o.mu.Lock()
	defer o.mu.Unlock()
	times, known := o.latest[f.Operator]
	if !known || !slices.Contains(inflight.Faults(), f.Fault) {
		return
	}
	if !f.Earlier {
		o.faults.WithLabelValues(f.Operator, f.Fault).Inc()
	}
	at, found := slices.BinarySearchFunc(times, f.At, time.Time.Compare)
	if found && f.Earlier {
		return
	}
	times = slices.Insert(times, at, f.At)
	times = times[max(0, len(times)-remembered):]
	o.latest[f.Operator] = times
	if len(times) == remembered {
		o.third.WithLabelValues(f.Operator).Set(float64(times[0].UnixNano()) / float64(time.Second))
	}
}
