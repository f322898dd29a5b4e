// Package telemetry exports the worker's state and events: Prometheus metrics, health, the timeline of batches, and the
// HTTP servers for them.
//
// Packages streams and ingest don't depend on it. The worker passes them a Metrics and a Timeline as observers, and
// telemetry reads their state through small functions. Start reading with this file, then health.go and timeline.go.
package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"millrace/internal/ingest"
	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

const namespace = "millrace"

// Build identifies this program.
type Build struct {
	Version   string // release, for example v1.2.3
	Commit    string // commit of the source
	GoVersion string // version of the Go compiler
}

// Metrics counts the worker's events. It implements Observer and ingest.Observer. Those calls allocate no memory once a
// device is known. All methods are safe for concurrent use.
//
// Metrics of a device have the label device, with the GPU's UUID or "host" as its value. Metrics of messages don't have
// that label, because a dead letter may never have reached a device.
type Metrics struct {
	registry *prometheus.Registry
	factory  promauto.Factory // registers metrics with the prefix millrace_
	stats    atomic.Pointer[func() []streams.Stats]

	outcomes   [inflight.NumOutcomes]prometheus.Counter
	in, out    prometheus.Counter
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
	suppressed [len(logLevels)]prometheus.Counter
	operators  operatorMetrics
	trim       *trimMetrics
	job        *jobCounter

	batches *batchVectors
	mu      sync.RWMutex
	devices map[string]*deviceMetrics // by device.Info.ID; label values resolved once
}

var (
	_ Observer        = (*Metrics)(nil)
	_ ingest.Observer = (*Metrics)(nil)
)

// NewMetrics creates the metrics in a new registry, together with those of the Go runtime and the process.
func NewMetrics(build Build) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), devices: map[string]*deviceMetrics{}, job: newJobCounter(time.Now())}
	m.factory = promauto.With(prometheus.WrapRegistererWithPrefix(namespace+"_", m.registry))
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		statsCollector{m},
	)
	m.registerMessages()
	m.frames = newFrameMetrics(m.factory)
	m.trim = newTrimMetrics(m.factory)
	m.registerWorker(build)
	m.registerLog()
	m.operators = newOperatorMetrics(m.factory)
	m.batches = newBatchVectors(m.factory)
	return m
}

// Registry returns the registry of all metrics.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// AddDevice registers a device's metrics, with value zero, before its first batch.
func (m *Metrics) AddDevice(id string) { m.device(id) }

// Watch makes every scrape read the pipelines' own counters: engines, overlap, lanes, scratch and pinned memory. It
// calls stats once per scrape, so that the values of one scrape are consistent. The function stats returns one entry
// per device.
func (m *Metrics) Watch(stats func() []streams.Stats) { m.stats.Store(&stats) }

// SetFallback sets whether the worker runs on the host although a GPU was requested.
func (m *Metrics) SetFallback(fellBack bool) {
	m.fallback.Set(0)
	if fellBack {
		m.fallback.Set(1)
	}
}

func (m *Metrics) registerMessages() {
	outcomes := m.factory.NewCounterVec(prometheus.CounterOpts{Name: "messages_total", Help: "Input messages that were settled, by outcome."}, []string{"outcome"})
	for o := range inflight.NumOutcomes {
		m.outcomes[o] = outcomes.WithLabelValues(o.String())
	}
	sizes := m.factory.NewCounterVec(prometheus.CounterOpts{Name: "payload_bytes_total", Help: "Bytes of the payloads of settled messages (in) and of the results published for them (out)."}, []string{"direction"})
	m.in, m.out = sizes.WithLabelValues("in"), sizes.WithLabelValues("out")
	m.latency = m.factory.NewHistogram(prometheus.HistogramOpts{Name: "payload_latency_seconds", Help: "Time from a payload's receipt to its result's publish acknowledgement.", Buckets: latencyBuckets})
	m.headroom = m.factory.NewHistogram(prometheus.HistogramOpts{Name: "ack_headroom_seconds", Help: "Remaining AckWait when a message was settled; below zero, the server had already scheduled it for redelivery.", Buckets: headroomBuckets})
	m.redelivery = m.factory.NewCounter(prometheus.CounterOpts{Name: "redeliveries_total", Help: "Messages received that had been delivered before."})
	m.pending = m.factory.NewGauge(prometheus.GaugeOpts{Name: "consumer_pending", Help: "Messages in the stream that the consumer has yet to deliver; with exclusive delivery, the sum over all partitions. Every worker reports the total."})
	m.unacked = m.factory.NewGauge(prometheus.GaugeOpts{Name: "consumer_ack_pending", Help: "Messages that the consumer has delivered, to any worker, and that nobody has acknowledged yet; with exclusive delivery, the sum over all partitions. Every worker reports the total."})
	m.stalled = m.factory.NewGauge(prometheus.GaugeOpts{Name: "consumer_stalled", Help: "Consumers that have messages but have delivered none for 30 s although this worker requests them: at most 1 with shared delivery, at most one per partition with exclusive delivery."})
	m.leftOut = m.factory.NewCounter(prometheus.CounterOpts{Name: "deadletters_without_payload_total", Help: "Dead letters that are stored without their payload, because the server takes no message of its size."})
	m.restarts = m.factory.NewCounter(prometheus.CounterOpts{Name: "partition_restarts_total", Help: "Times that this worker restarted a partition because of an error, with exclusive delivery."})
	m.reconnects = m.factory.NewCounter(prometheus.CounterOpts{Name: "nats_reconnects_total", Help: "Lost connections to NATS that were re-established."})
}

func (m *Metrics) registerWorker(build Build) {
	m.fallback = m.factory.NewGauge(prometheus.GaugeOpts{Name: "device_fallback", Help: "1 if the worker runs on the host because no GPU was available, else 0."})
	info := m.factory.NewGaugeVec(prometheus.GaugeOpts{Name: "build_info", Help: "Always 1; the labels identify the program."},
		[]string{"version", "commit", "goversion"})
	info.WithLabelValues(build.Version, build.Commit, build.GoVersion).Set(1)
}
