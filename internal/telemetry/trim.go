package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"millrace/internal/ingest/trim"
)

// trimMetrics holds the metrics about the removal of processed inputs. One goroutine changes them.
type trimMetrics struct {
	removed prometheus.Counter
	floor   *prometheus.GaugeVec // by consumer; it exists for one at a time
	holder  string               // that consumer, or empty
	held    map[trim.Reason]prometheus.Gauge
	kept    atomic.Pointer[Kept] // for the timeline page
}

// Kept says which processed inputs the input stream must keep. It is zero while it keeps none, and in workers that leave the trimming to others.
type Kept struct {
	Consumer string `json:"consumer"` // needs the first input that is kept
	Inputs   uint64 `json:"inputs"`   // sequences from that input to the stream's end
	Why      string `json:"why"`      // why no processed input may be removed; a value of the metric's label reason
}

// Kept returns what the input stream must keep.
func (m *Metrics) Kept() Kept {
	if k := m.trim.kept.Load(); k != nil {
		return *k
	}
	return Kept{}
}

func newTrimMetrics(f promauto.Factory) *trimMetrics {
	m := &trimMetrics{
		removed: f.NewCounter(prometheus.CounterOpts{Name: "trimmed_inputs_total", Help: "Processed inputs that this worker removed from the input stream."}),
		floor: f.NewGaugeVec(prometheus.GaugeOpts{Name: "trim_floor_distance", Help: "Sequences from the first input that the stream must keep to its end, with the name of the consumer that needs that input. " +
			"Workers that leave the trimming to others don't have it."}, []string{"consumer"}),
		held: map[trim.Reason]prometheus.Gauge{},
	}
	held := f.NewGaugeVec(prometheus.GaugeOpts{Name: "trim_held", Help: "1 while this worker would remove processed inputs and may not, by reason, else 0; see docs/streams.md."}, []string{"reason"})
	for _, why := range trim.Reasons {
		m.held[why] = held.WithLabelValues(string(why))
	}
	return m
}

// Trim implements ingest.Observer.
func (m *Metrics) Trim(removed uint64, s trim.State) {
	t := m.trim
	t.removed.Add(float64(removed))
	kept := Kept{Consumer: s.Holder, Inputs: s.Behind(), Why: string(s.Held)}
	if s.Held == trim.NotTrimmed {
		kept = Kept{} // somebody wants that
	}
	t.kept.Store(&kept)
	for why, gauge := range t.held {
		gauge.Set(map[bool]float64{true: 1}[why == s.Held])
	}
	if t.holder != s.Holder && t.holder != "" {
		t.floor.DeleteLabelValues(t.holder)
	}
	if t.holder = s.Holder; t.holder != "" {
		t.floor.WithLabelValues(t.holder).Set(float64(s.Behind()))
	}
}
