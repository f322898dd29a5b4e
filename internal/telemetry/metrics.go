// Package telemetry exports the worker's state and events: Prometheus metrics, health, the timeline of batches, and the
// HTTP servers for them.
//
// Packages streams and ingest don't depend on it. The worker passes them a Metrics and a Timeline as observers, and
// telemetry reads their state through small functions. Start reading with this file, then health.go and timeline.go.
package telemetry

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"millrace/internal/ingest"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/memory"
	"millrace/internal/streams"
)

const namespace = "millrace"

// Build identifies this program.
type Build struct {
	Version   string // release, for example v1.2.3
	Commit    string // commit of the source
	GoVersion string // version of the Go compiler
}

// Metrics counts the worker's events. It implements Observer and ingest.Observer. The methods for batches, frames and
// settled messages allocate no memory once a device is known. All methods are safe for concurrent use.
//
// Metrics of a device have the label device, with the GPU's UUID or "host" as its value. Metrics of messages don't have that
// label, because a message may become a dead letter without reaching a device.
type Metrics struct {
	registry *prometheus.Registry
	factory  promauto.Factory // registers metrics with the prefix millrace_
	stats    atomic.Pointer[func() []streams.Stats]

	outcomes   [inflight.NumOutcomes]prometheus.Counter
	in, out    prometheus.Counter
	letters    *prometheus.CounterVec // counters by reason
	frames     frameMetrics
	latency    prometheus.Histogram
	headroom   prometheus.Histogram
	redelivery prometheus.Counter
	pending    prometheus.Gauge
	unacked    prometheus.Gauge
	reconnects prometheus.Counter
	stalled    prometheus.Gauge
	leftOut    prometheus.Counter
	restarts   prometheus.Counter
	fallback   prometheus.Gauge
	suppressed *prometheus.CounterVec // counters by level
	operators  operatorMetrics
	trim       *trimMetrics
	job        *jobCounter
	batches    *batchVectors
	states     *stateMetrics
}

var (
	_ Observer        = (*Metrics)(nil)
	_ ingest.Observer = (*Metrics)(nil)
)

// NewMetrics creates the metrics in a new registry, together with the metrics of the Go runtime and the process.
func NewMetrics(build Build) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), job: newJobCounter(time.Now())}
	m.factory = promauto.With(prometheus.WrapRegistererWithPrefix(namespace+"_", m.registry))
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.CollectorFunc(m.collectStats),
	)
	m.registerMessages()
	m.frames = newFrameMetrics(m.factory)
	m.trim = newTrimMetrics(m.factory)
	m.registerWorker(build)
	m.registerLog()
	m.operators = newOperatorMetrics(m.factory)
	m.batches = newBatchVectors(m.factory)
	m.states = newStateMetrics(m.factory)
	return m
}

// Registry returns the registry of all metrics.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Watch makes every scrape read the pipelines' counters of engines, overlap, lanes, scratch and pinned memory. Each
// scrape calls stats once, so its values are consistent. The function stats returns one entry per device.
func (m *Metrics) Watch(stats func() []streams.Stats) { m.stats.Store(&stats) }

// SetFallback sets the metric device_fallback, which is 1 if the worker runs on the host for lack of a GPU.
func (m *Metrics) SetFallback(fellBack bool) {
	m.fallback.Set(0)
	if fellBack {
		m.fallback.Set(1)
	}
}

func (m *Metrics) registerMessages() {
	outcomes := m.factory.NewCounterVec(prometheus.CounterOpts{Name: "messages_total", Help: "Settled input messages, by outcome."}, []string{"outcome"})
	for o := range inflight.NumOutcomes {
		m.outcomes[o] = outcomes.WithLabelValues(o.String())
	}
	m.letters = m.factory.NewCounterVec(prometheus.CounterOpts{Name: "dead_letters_total", Help: "Stored dead letters of messages and of records of frames, by reason. no_field counts records without their field."}, []string{"reason"})
	for _, why := range results.Reasons {
		m.letters.WithLabelValues(string(why))
	}
	sizes := m.factory.NewCounterVec(prometheus.CounterOpts{Name: "payload_bytes_total", Help: "Bytes of settled messages' payloads (in) and of their results (out)."}, []string{"direction"})
	m.in, m.out = sizes.WithLabelValues("in"), sizes.WithLabelValues("out")
	m.latency = m.factory.NewHistogram(prometheus.HistogramOpts{Name: "payload_latency_seconds", Help: "Time from a payload's receipt to its result's publish acknowledgement.", Buckets: latencyBuckets})
	m.headroom = m.factory.NewHistogram(prometheus.HistogramOpts{Name: "ack_headroom_seconds", Help: "AckWait that was left when a message was settled. Below zero, the server redelivers the message.", Buckets: headroomBuckets})
	m.redelivery = m.factory.NewCounter(prometheus.CounterOpts{Name: "redeliveries_total", Help: "Received messages that the server had delivered before."})
	m.pending = m.factory.NewGauge(prometheus.GaugeOpts{Name: "consumer_pending", Help: "Messages that the consumer has not delivered yet, over all partitions. Every worker reports the total."})
	m.unacked = m.factory.NewGauge(prometheus.GaugeOpts{Name: "consumer_ack_pending", Help: "Messages that are delivered to any worker and not yet acknowledged, over all partitions. Every worker reports the total."})
	m.stalled = m.factory.NewGauge(prometheus.GaugeOpts{Name: "consumer_stalled", Help: "Consumers that have messages but have delivered none for 30 s although this worker requests messages. With exclusive delivery, each partition has a consumer."})
	m.leftOut = m.factory.NewCounter(prometheus.CounterOpts{Name: "deadletters_without_payload_total", Help: "Dead letters stored without their payload, because the payload exceeds the server's limit."})
	m.restarts = m.factory.NewCounter(prometheus.CounterOpts{Name: "partition_restarts_total", Help: "Times that this worker restarted a partition after an error, with exclusive delivery."})
	m.reconnects = m.factory.NewCounter(prometheus.CounterOpts{Name: "nats_reconnects_total", Help: "Lost connections to NATS that were re-established."})
}

func (m *Metrics) registerWorker(build Build) {
	m.fallback = m.factory.NewGauge(prometheus.GaugeOpts{Name: "device_fallback", Help: "1 if the worker computes on the CPU because no GPU was available, else 0."})
	info := m.factory.NewGaugeVec(prometheus.GaugeOpts{Name: "build_info", Help: "Always 1. The labels identify the program."},
		[]string{"version", "commit", "goversion"})
	info.WithLabelValues(build.Version, build.Commit, build.GoVersion).Set(1)
}

// These are the upper bounds of the histograms' buckets, in seconds, bytes, payloads or records.
var (
	// stageBuckets range from 10 us to an hour. Below 10 us, the cost of the launch dominates. An hour is the maximum
	// deadline of a batch.
	stageBuckets = []float64{
		10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6,
		1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3,
		1, 2.5, 5, 10, 30, 60, 300, 3600,
	}

	// latencyBuckets range from 100 us, a round trip to the server, to an hour.
	latencyBuckets = []float64{
		100e-6, 250e-6, 500e-6,
		1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3,
		1, 2.5, 5, 10, 30, 60, 300, 3600,
	}

	// headroomBuckets start at 0. A message with a headroom below 0 was settled too late and is delivered again. The default AckWait
	// is 30 s. The threshold of an alert is a fifth of AckWait, by default 6 s.
	headroomBuckets = []float64{0, 0.1, 0.5, 1, 2, 5, 6, 10, 15, 20, 25, 30, 60, 120, 300, 600, 3600}

	// frameRecordBuckets end at the maximum of MILLRACE_FRAME_RECORDS.
	frameRecordBuckets = append([]float64{0}, prometheus.ExponentialBuckets(1, 4, 13)...) // 0, and 1 to 16777216

	batchPayloadBuckets = prometheus.ExponentialBuckets(1, 2, 21)   // 1 to 1048576
	batchByteBuckets    = prometheus.ExponentialBuckets(256, 4, 12) // 256 to 1 GiB
)

// Limits are settings that alerts compare with other metrics, such as batch fill and acknowledgement headroom. They are
// exported as metrics, so alerts don't need a copy of the configuration.
type Limits struct {
	BatchBytes    int           // size at which a batch closes
	BatchPayloads int           // payload count at which a batch closes
	AckWait       time.Duration // AckWait of the consumer
}

// SetLimits registers the limits. Call it once, when the consumer is known.
func (m *Metrics) SetLimits(l Limits) {
	m.factory.NewGauge(prometheus.GaugeOpts{Name: "batch_limit_bytes", Help: "Bytes at which a batch closes."}).Set(float64(l.BatchBytes))
	m.factory.NewGauge(prometheus.GaugeOpts{Name: "batch_limit_payloads", Help: "Payloads at which a batch closes. Each record of a frame counts as a payload."}).Set(float64(l.BatchPayloads))
	m.factory.NewGauge(prometheus.GaugeOpts{Name: "ack_wait_seconds", Help: "AckWait of the consumer: the time after which the server redelivers an unacknowledged message."}).Set(l.AckWait.Seconds())
}

// WatchWorker makes every scrape report the state of the ingest worker.
func (m *Metrics) WatchWorker(status func() ingest.Status) {
	m.watch("in_hand_batches", "Batches that contain payloads and are being filled, computed or settled.", func() int { return status().InHand })
	m.watch("partitions_owned", "Partitions that this worker owns, with exclusive delivery. The worker owns a partition when it has received an input, so 0 is normal without inputs.", func() int { return status().Partitions })
	m.watch("held_back_payloads", "Payloads that failed when they were computed alone, if no other payload has succeeded since. The server redelivers them later.", func() int { return status().HeldBack })
}

// WatchConnected makes every scrape report whether all connections to NATS are up.
func (m *Metrics) WatchConnected(connected func() bool) {
	m.watch("nats_connected", "1 while all connections to NATS are up, else 0. It is also 0 while a starting worker waits for NATS.", func() int {
		if connected() {
			return 1
		}
		return 0
	})
}

// watch registers a gauge that every scrape reads.
func (m *Metrics) watch(name, help string, read func() int) {
	m.factory.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(read()) })
}

// WatchMemory makes every scrape report the memory budget: its limit, the used memory, and the number of times that a
// payload had to wait for memory.
func (m *Metrics) WatchMemory(read func() memory.Usage) {
	budget := func(state string, bytes func() float64) {
		m.factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "memory_budget_bytes",
			Help:        "Memory budget for payloads in flight, their results and related data: its limit, and the used part.",
			ConstLabels: prometheus.Labels{"state": state},
		}, bytes)
	}
	budget("limit", func() float64 { return float64(read().Limit) })
	budget("used", func() float64 { return float64(read().Used) })
	m.factory.NewCounterFunc(prometheus.CounterOpts{
		Name: "memory_budget_waits_total", Help: "Number of times that a payload had to wait for memory.",
	}, func() float64 { return float64(read().Waits) })
}

func (m *Metrics) registerLog() {
	m.suppressed = m.factory.NewCounterVec(prometheus.CounterOpts{Name: "log_suppressed_total", Help: "Log lines that were suppressed because their message repeated, by level."}, []string{"level"})
	for _, level := range []string{"debug", "info", "warn", "error"} {
		m.suppressed.WithLabelValues(level)
	}
}

// LogSuppressed counts a suppressed log line of the given level. A level between two names, such as WARN+1, counts as the lower one.
func (m *Metrics) LogSuppressed(level slog.Level) {
	m.suppressed.WithLabelValues(strings.ToLower(strings.TrimRight(level.String(), "+-0123456789"))).Inc()
}
