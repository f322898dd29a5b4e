package telemetry

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// errorKinds are the kinds that device.Kind returns, and the kind of a failed probe.
var errorKinds = [...]string{"hung", "lost", streams.KindProbe, "out_of_memory", "launch", "invalid", "unavailable", "abi", "other"}

// batchVectors holds the batch metrics of all devices.
type batchVectors struct {
	done     *prometheus.CounterVec
	payloads *prometheus.HistogramVec
	bytes    *prometheus.HistogramVec
	closed   *prometheus.CounterVec
	stages   *prometheus.HistogramVec
	errors   *prometheus.CounterVec
}

func newBatchVectors(f promauto.Factory) *batchVectors {
	return &batchVectors{
		done:     f.NewCounterVec(prometheus.CounterOpts{Name: "batches_total", Help: "Finished batches, including failed batches."}, []string{"device"}),
		payloads: f.NewHistogramVec(prometheus.HistogramOpts{Name: "batch_payloads", Help: "Payloads in a batch. Each record of a frame counts as a payload.", Buckets: batchPayloadBuckets}, []string{"device"}),
		bytes:    f.NewHistogramVec(prometheus.HistogramOpts{Name: "batch_bytes", Help: "Total size of a batch's payloads.", Buckets: batchByteBuckets}, []string{"device"}),
		closed:   f.NewCounterVec(prometheus.CounterOpts{Name: "batch_close_total", Help: "Closed batches, by reason."}, []string{"device", "reason"}),
		stages:   f.NewHistogramVec(prometheus.HistogramOpts{Name: "stage_seconds", Help: "Duration of each stage of a batch.", Buckets: stageBuckets}, []string{"device", "stage"}),
		errors:   f.NewCounterVec(prometheus.CounterOpts{Name: "device_errors_total", Help: "Failed device calls, by kind of failure."}, []string{"device", "kind"}),
	}
}

// AddDevice registers a device's metrics, with value zero, before its first batch.
func (m *Metrics) AddDevice(id string) {
	v := m.batches
	v.done.WithLabelValues(id)
	v.payloads.WithLabelValues(id)
	v.bytes.WithLabelValues(id)
	for r := range streams.NumCloseReasons {
		v.closed.WithLabelValues(id, r.String())
	}
	for s := range inflight.NumStages {
		v.stages.WithLabelValues(id, s.String())
	}
	for _, kind := range errorKinds {
		v.errors.WithLabelValues(id, kind)
	}
}

// BatchDone implements inflight.RecordObserver. It doesn't observe stages that did not happen. It observes the pipeline's stages of a batch
// once, and the publishing and settling of each lease's part.
func (m *Metrics) BatchDone(r *inflight.Record) {
	v := m.batches
	if r.Part == 0 {
		v.done.WithLabelValues(r.Device).Inc()
		v.payloads.WithLabelValues(r.Device).Observe(float64(r.Payloads))
		v.bytes.WithLabelValues(r.Device).Observe(float64(r.Bytes))
		v.closed.WithLabelValues(r.Device, r.Closed.String()).Inc()
	}
	for stage, span := range r.Spans() {
		if span != (streams.Span{}) && (r.Part == 0 || inflight.Stage(stage) >= inflight.Publish) {
			v.stages.WithLabelValues(r.Device, inflight.Stage(stage).String()).Observe(span.Duration().Seconds())
		}
	}
}

// DeviceError implements streams.Observer. An unknown kind counts as "other".
func (m *Metrics) DeviceError(deviceID, kind string) {
	if !slices.Contains(errorKinds[:], kind) {
		kind = "other"
	}
	m.batches.errors.WithLabelValues(deviceID, kind).Inc()
}

// Settled implements ingest.Observer. Only a stored result has a latency.
func (m *Metrics) Settled(o inflight.Outcome, in, out int, latency, headroom time.Duration) {
	m.outcomes[o].Inc()
	m.job.settled(o, in)
	m.in.Add(float64(in))
	m.out.Add(float64(out))
	m.headroom.Observe(headroom.Seconds())
	if o == inflight.Published || o == inflight.Duplicate {
		m.latency.Observe(latency.Seconds())
	}
}

// Redelivered implements ingest.Observer.
func (m *Metrics) Redelivered() { m.redelivery.Inc(); m.job.redelivered.Add(1) }

// Pending implements ingest.Observer.
func (m *Metrics) Pending(messages uint64) {
	m.pending.Set(float64(messages))
	m.job.pending.Store(messages)
}

// Unacknowledged implements ingest.Observer.
func (m *Metrics) Unacknowledged(messages uint64) {
	m.unacked.Set(float64(messages))
	m.job.unacknowledged(messages, time.Now())
}

// Stalled implements ingest.Observer.
func (m *Metrics) Stalled(consumers int) { m.stalled.Set(float64(consumers)) }

// Restarted implements ingest.Observer.
func (m *Metrics) Restarted() { m.restarts.Inc() }

// PayloadLeftOut implements ingest.Observer.
func (m *Metrics) PayloadLeftOut() { m.leftOut.Inc() }

// Reconnected implements ingest.Observer.
func (m *Metrics) Reconnected() { m.reconnects.Inc() }

// These descriptors describe the pipelines' counters, which every scrape reads.
var (
	engineBusyDesc = statsDesc("engine_busy_seconds_total", "Time during which each engine of the device was busy.", "engine")
	deviceBusyDesc = statsDesc("device_busy_seconds_total", "Time during which at least one engine of the device was busy.")
	overlapDesc    = statsDesc("overlap_seconds_total", "Time during which two or more engines were busy at once.")
	lanesDesc      = statsDesc("lanes", "Lanes by state.", "state")
	scratchDesc    = statsDesc("scratch_pool_bytes", "Device memory of the scratch pool: allocated (used), maximum of used (high_water), and taken from the device (reserved).", "state")
	limitDesc      = statsDesc("scratch_limit_bytes", "Size limit of the scratch pool.")
	allocatedDesc  = statsDesc("scratch_allocations_total", "Successful allocations from the scratch pool.")
	refusedDesc    = statsDesc("scratch_allocation_failures_total", "Allocations from the scratch pool that failed for lack of memory.")
	pinnedDesc     = statsDesc("pinned_bytes", "Pinned host memory that the worker holds.")
	pageableDesc   = statsDesc("pageable_bytes", "Host memory for batches that is not pinned: all of it on a CPU, none on a GPU.")
)

func statsDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, append([]string{"device"}, labels...), nil)
}

// collectStats exports the pipelines' counters. It reads them once per scrape and doesn't keep them, so overlap never
// exceeds busy in a scrape.
func (m *Metrics) collectStats(to chan<- prometheus.Metric) {
	stats := m.stats.Load()
	if stats == nil {
		return // there is no pipeline yet
	}
	for _, s := range (*stats)() {
		collect(to, s)
	}
}

func collect(to chan<- prometheus.Metric, s streams.Stats) {
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, append([]string{s.Device}, labels...)...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{s.Device}, labels...)...)
	}
	for e := range streams.NumEngines {
		counter(engineBusyDesc, s.Engines[e].Seconds(), e.String())
	}
	counter(deviceBusyDesc, s.Busy.Seconds())
	counter(overlapDesc, s.Overlap.Seconds())
	gauge(lanesDesc, float64(s.Lanes.Free), "free")
	gauge(lanesDesc, float64(s.Lanes.Filling), "filling")
	gauge(lanesDesc, float64(s.Lanes.InFlight), "in_flight")
	gauge(scratchDesc, float64(s.Scratch.Used), "used")
	gauge(scratchDesc, float64(s.Scratch.Reserved), "reserved")
	gauge(scratchDesc, float64(s.Scratch.HighWater), "high_water")
	gauge(limitDesc, float64(s.Scratch.Limit))
	counter(allocatedDesc, float64(s.Scratch.Allocations))
	counter(refusedDesc, float64(s.Scratch.Failures))
	gauge(pinnedDesc, float64(s.Pinned))
	gauge(pageableDesc, float64(s.Pageable))
}
