package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"millrace/internal/streams"
)

// Metrics that the pipelines keep, read at each scrape.
var (
	engineBusyDesc = statsDesc("engine_busy_seconds_total", "Time that each engine of the device was busy.", "engine")
	deviceBusyDesc = statsDesc("device_busy_seconds_total", "Time that any engine of the device was busy.")
	overlapDesc    = statsDesc("overlap_seconds_total", "Time that two engines or more were busy at once.")
	lanesDesc      = statsDesc("lanes", "Lanes by state.", "state")
	scratchDesc    = statsDesc("scratch_pool_bytes", "Device memory of the scratch pool: allocated (used), taken from the device (reserved), and the maximum allocated at once (high_water).", "state")
	limitDesc      = statsDesc("scratch_limit_bytes", "Size limit of the scratch pool.")
	allocatedDesc  = statsDesc("scratch_allocations_total", "Successful allocations from the scratch pool.")
	refusedDesc    = statsDesc("scratch_allocation_failures_total", "Allocations from the scratch pool that were refused for lack of memory.")
	pinnedDesc     = statsDesc("pinned_bytes", "Pinned host memory held.")
	pageableDesc   = statsDesc("pageable_bytes", "Host memory for batches that is not pinned: all of it on a CPU, none on a GPU.")
)

func statsDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, append([]string{"device"}, labels...), nil)
}

// statsCollector exports the pipelines' counters. It reads them once per scrape and doesn't keep them, so overlap never
// exceeds busy in a scrape.
type statsCollector struct{ m *Metrics }

// Describe implements prometheus.Collector.
func (c statsCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		engineBusyDesc, deviceBusyDesc, overlapDesc, lanesDesc, scratchDesc, limitDesc, allocatedDesc, refusedDesc, pinnedDesc, pageableDesc,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c statsCollector) Collect(to chan<- prometheus.Metric) {
	stats := c.m.stats.Load()
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
