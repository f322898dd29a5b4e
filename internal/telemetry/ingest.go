package telemetry

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/trim"
	"millrace/internal/record"
)

// frameMetrics holds the metrics of messages that are split into records or decompressed.
type frameMetrics struct {
	records                  [record.Statuses]prometheus.Counter
	perFrame                 prometheus.Histogram
	parts                    prometheus.Counter
	compressed, decompressed prometheus.Counter
	decompressing, splitting prometheus.Counter

	filtered   *prometheus.CounterVec
	conditions []prometheus.Counter // counter of each condition of the filter; several conditions may share a counter
}

func newFrameMetrics(f promauto.Factory) (m frameMetrics) {
	records := f.NewCounterVec(prometheus.CounterOpts{Name: "records_total", Help: "Records of frames whose results are stored, by outcome. Records with any outcome except ok and null also have dead letters."}, []string{"outcome"})
	for s := range record.Status(record.Statuses) {
		m.records[s] = records.WithLabelValues(s.String())
	}
	m.perFrame = f.NewHistogram(prometheus.HistogramOpts{Name: "frame_records", Help: "Records in a frame whose result is stored.", Buckets: frameRecordBuckets})
	m.parts = f.NewCounter(prometheus.CounterOpts{Name: "frame_result_parts_total", Help: "Messages that store results of frames: one per frame, or more if a result exceeds max_payload or max_msg_size."})
	bytes := f.NewCounterVec(prometheus.CounterOpts{Name: "decompression_bytes_total", Help: "Bytes of compressed messages whose results are stored, before (in) and after (out) decompression."}, []string{"direction"})
	m.compressed, m.decompressed = bytes.WithLabelValues("in"), bytes.WithLabelValues("out")
	seconds := f.NewCounterVec(prometheus.CounterOpts{Name: "unpack_seconds_total", Help: "Time spent on decompressing messages whose results are stored, and on finding their records."}, []string{"step"})
	m.decompressing, m.splitting = seconds.WithLabelValues("decompress"), seconds.WithLabelValues("split")
	m.filtered = f.NewCounterVec(prometheus.CounterOpts{Name: "records_filtered_total", Help: "Records that a condition of the filter left out of results, by condition."}, []string{"filter"})
	return m
}

// Limits of the label filter. Without them, a long filter would make many long series.
const (
	maxConditions    = 50  // conditions that have separate counters
	maxConditionText = 100 // bytes of a condition in a label
	otherConditions  = "other"
)

// AddFilter registers the conditions of the filter, with value zero. Null records have no result that a condition could examine, so they
// have a separate counter. Call AddFilter before the first call of Frame.
func (m *Metrics) AddFilter(conditions []string) {
	m.frames.conditions = nil
	for i, text := range conditions {
		if len(text) > maxConditionText {
			text = strings.ToValidUTF8(text[:maxConditionText], "") + "..."
		}
		if i >= maxConditions {
			text = otherConditions
		}
		m.frames.conditions = append(m.frames.conditions, m.frames.filtered.WithLabelValues(text))
	}
	m.frames.conditions = append(m.frames.conditions, m.frames.filtered.WithLabelValues(record.Null.String()))
}

// Frame implements ingest.Observer.
func (m *Metrics) Frame(s inflight.FrameStats) {
	f := &m.frames
	f.compressed.Add(float64(s.Compressed))
	f.decompressed.Add(float64(s.Decompressed))
	f.decompressing.Add(s.Decompressing.Seconds())
	f.splitting.Add(s.Splitting.Seconds())
	for i, n := range s.LeftOut {
		f.conditions[i].Add(float64(n))
		m.job.filtered.Add(uint64(n))
	}
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

// operatorMetrics holds the metrics of the operators that the worker runs.
//
// A process that loses its device ends before Prometheus can scrape the count of that fault. The time of the third-last fault is
// therefore also a metric, which an alert compares with its window. It includes the faults of earlier processes, which the worker
// reads from the consumer's metadata.
type operatorMetrics struct {
	faults *prometheus.CounterVec
	third  *prometheus.GaugeVec

	mu     sync.Mutex
	latest map[string][]time.Time // times of each operator's latest faults, ascending, at most remembered
}

// remembered is the number of fault times that are kept for each operator. The alert fires after that number of faults.
const remembered = 3

func newOperatorMetrics(f promauto.Factory) operatorMetrics {
	return operatorMetrics{
		faults: f.NewCounterVec(prometheus.CounterOpts{Name: "operator_faults_total", Help: "Faults of an operator that this process observed."}, []string{"operator", "fault"}),
		third:  f.NewGaugeVec(prometheus.GaugeOpts{Name: "operator_third_last_fault_timestamp_seconds", Help: "Unix time of the third-last fault of an operator, in any process. It is 0 if the operator had fewer than three faults."}, []string{"operator"}),
		latest: map[string][]time.Time{},
	}
}

// AddOperators registers the metrics of the operators with the given names, with value zero. Faults of other operators
// aren't counted.
func (m *Metrics) AddOperators(names []string) {
	o := &m.operators
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		if _, known := o.latest[name]; known {
			continue // added for another device's pipeline
		}
		o.latest[name] = nil
		o.third.WithLabelValues(name).Set(0)
		for _, fault := range inflight.Faults() {
			o.faults.WithLabelValues(name, fault)
		}
	}
}

// OperatorFault implements ingest.Observer. It ignores a fault of an earlier process if it has already recorded a fault with the
// same time.
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

// trimMetrics holds the metrics about the removal of processed inputs. One goroutine changes them.
type trimMetrics struct {
	removed prometheus.Counter
	floor   *prometheus.GaugeVec // by consumer; only holder has a value
	holder  string               // consumer that needs the first kept input; empty if there is none
	held    map[trim.Reason]prometheus.Gauge
	kept    atomic.Pointer[Kept] // for the timeline page
}

// Kept describes the inputs that the input stream must keep. Either a consumer needs them, or no input may be removed.
// Kept is zero if another worker trims the stream, or if trimming is off.
type Kept struct {
	Consumer string `json:"consumer"` // consumer that needs the first kept input
	Inputs   uint64 `json:"inputs"`   // number of sequences from that input to the stream's end
	Why      string `json:"why"`      // reason why no processed input may be removed; a value of the metric's label reason
}

// Kept returns the Kept of the last call of Trim, or the zero Kept.
func (m *Metrics) Kept() Kept {
	if k := m.trim.kept.Load(); k != nil {
		return *k
	}
	return Kept{}
}

func newTrimMetrics(f promauto.Factory) *trimMetrics {
	m := &trimMetrics{
		removed: f.NewCounter(prometheus.CounterOpts{Name: "trimmed_inputs_total", Help: "Processed inputs that this worker removed from the input stream."}),
		floor:   f.NewGaugeVec(prometheus.GaugeOpts{Name: "trim_floor_distance", Help: "Sequences from the first input that the consumer needs to the end of the stream. Only the worker that trims the stream reports it."}, []string{"consumer"}),
		held:    map[trim.Reason]prometheus.Gauge{},
	}
	held := f.NewGaugeVec(prometheus.GaugeOpts{Name: "trim_held", Help: "1 while this worker may not remove processed inputs, by reason, else 0. See docs/streams.md."}, []string{"reason"})
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
		kept = Kept{} // no trimming is intended, so the page doesn't show it
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
