// Package telemetry shows what the worker does: Prometheus metrics, health, the timeline of batches, and the
// HTTP servers that give them out.
//
// The pipeline and NATS know nothing of it. They are handed a Metrics and a Timeline as their observers, and
// what they keep is read through small functions.
package telemetry

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"millrace/internal/ingest"
	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

const namespace = "millrace"

// Build says what program this is.
type Build struct {
	Version   string // release, like v1.2.3
	Commit    string // of the source
	GoVersion string // of the compiler
}

// Metrics counts what the worker does. It implements streams.Observer and ingest.Observer; those calls
// allocate nothing once a device is known, and all methods are safe for concurrent use.
//
// Metrics of a device bear the label device, the GPU's UUID or "host". Those of messages do not: a message
// that is given up may never have reached a device.
type Metrics struct {
	registry *prometheus.Registry
	stats    atomic.Pointer[func() []streams.Stats]

	outcomes   [inflight.NumOutcomes]prometheus.Counter
	in, out    prometheus.Counter
	latency    prometheus.Histogram
	headroom   prometheus.Histogram
	redelivery prometheus.Counter
	pending    prometheus.Gauge
	reconnects prometheus.Counter
	stalled    prometheus.Gauge
	restarts   prometheus.Counter
	fallback   prometheus.Gauge
	suppressed [len(logLevels)]prometheus.Counter

	batches *batchVectors
	mu      sync.RWMutex
	devices map[string]*deviceMetrics // by device.Info.ID; the children resolved once
}

var (
	_ streams.Observer = (*Metrics)(nil)
	_ ingest.Observer  = (*Metrics)(nil)
)

// NewMetrics makes the metrics on a registry of their own, with those of the Go runtime and the process
// beside them.
func NewMetrics(build Build) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), devices: map[string]*deviceMetrics{}}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		statsCollector{m},
	)
	m.registerMessages()
	m.registerWorker(build)
	m.registerLog()
	m.batches = newBatchVectors(m.registry)
	return m
}

// Registry is where all metrics are registered.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// AddDevice makes a device's metrics appear, at zero, before its first batch.
func (m *Metrics) AddDevice(id string) { m.device(id) }

// Watch makes every scrape read the pipelines' own counters: engines, overlap, lanes, scratch and pinned
// memory. It calls stats once a scrape, so that figures of one scrape fit together; stats returns one entry
// for each device.
func (m *Metrics) Watch(stats func() []streams.Stats) { m.stats.Store(&stats) }

// SetFallback says whether the worker runs on the host although a GPU was asked for.
func (m *Metrics) SetFallback(fellBack bool) {
	m.fallback.Set(0)
	if fellBack {
		m.fallback.Set(1)
	}
}

func (m *Metrics) registerMessages() {
	outcomes := counterVec(m.registry, "messages_total", "Input messages that came to their end, by what became of them.", "outcome")
	for o := range inflight.NumOutcomes {
		m.outcomes[o] = outcomes.WithLabelValues(o.String())
	}
	sizes := counterVec(m.registry, "payload_bytes_total", "Bytes of the payloads of settled messages (in) and of the results published for them (out).", "direction")
	m.in, m.out = sizes.WithLabelValues("in"), sizes.WithLabelValues("out")
	m.latency = histogram(m.registry, "payload_latency_seconds", "Time from a payload's receipt to its result's publish acknowledgement.", latencyBuckets)
	m.headroom = histogram(m.registry, "ack_headroom_seconds", "What was left of AckWait when a message was settled; below zero the server had given up on it.", headroomBuckets)
	m.redelivery = counter(m.registry, "redeliveries_total", "Messages received that had been delivered before.")
	m.pending = gauge(m.registry, "consumer_pending", "Messages in the stream that the consumer has yet to deliver; with exclusive delivery those of all partitions. Every worker tells the whole.")
	m.stalled = gauge(m.registry, "consumer_stalled", "Consumers that have messages and have delivered none for 30 s, though this worker asks for them: 1 at most with shared delivery, with exclusive delivery one for each partition.")
	m.restarts = counter(m.registry, "partition_restarts_total", "Times that this worker began a partition anew because something was wrong, with exclusive delivery.")
	m.reconnects = counter(m.registry, "nats_reconnects_total", "Connections to NATS that were lost and came back.")
}

func (m *Metrics) registerWorker(build Build) {
	m.fallback = gauge(m.registry, "device_fallback", "1 if no GPU could be had and the worker runs on the host instead, else 0.")
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "Always 1; its labels say which program this is.",
	}, []string{"version", "commit", "goversion"})
	m.registry.MustRegister(info)
	info.WithLabelValues(build.Version, build.Commit, build.GoVersion).Set(1)
}

func counter(r prometheus.Registerer, name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	r.MustRegister(c)
	return c
}

func counterVec(r prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	r.MustRegister(c)
	return c
}

func gauge(r prometheus.Registerer, name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	r.MustRegister(g)
	return g
}

func histogram(r prometheus.Registerer, name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
	r.MustRegister(h)
	return h
}

func histogramVec(r prometheus.Registerer, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	r.MustRegister(h)
	return h
}
