package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/internal/ingest/inflight"
)

// Limits are settings that other metrics are compared with. They are exported as metrics too, so that alerts don't need
// a copy of the configuration: batch fill and acknowledgement headroom are shares of them.
type Limits struct {
	BatchBytes    int           // size at which a batch closes
	BatchPayloads int           // payload count at which a batch closes
	AckWait       time.Duration // AckWait of the consumer
}

// SetLimits registers the limits. Call it once, when the consumer is known.
func (m *Metrics) SetLimits(l Limits) {
	gauge(m.registry, "batch_limit_bytes", "Bytes at which a batch closes.").Set(float64(l.BatchBytes))
	gauge(m.registry, "batch_limit_payloads", "Payloads at which a batch closes.").Set(float64(l.BatchPayloads))
	gauge(m.registry, "ack_wait_seconds", "AckWait of the consumer: how long the server waits for an acknowledgement before it delivers a message again.").Set(l.AckWait.Seconds())
}

// WatchHeldBack makes every scrape report how many payloads are held back: an operator fails on each of them alone, and
// no other payload has succeeded since.
func (m *Metrics) WatchHeldBack(payloads func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "held_back_payloads",
		Help: "Payloads held back because an operator fails on each of them alone and no other payload has succeeded since; they are retried later.",
	}, func() float64 { return float64(payloads()) }))
}

// WatchPartitions makes every scrape report how many partitions the worker owns.
func (m *Metrics) WatchPartitions(partitions func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "partitions_owned",
		Help: "Partitions that this worker owns, with exclusive delivery.",
	}, func() float64 { return float64(partitions()) }))
}

// WatchMemory makes every scrape report how much memory the payloads in flight use, the limit for it, and how often a
// payload had to wait for memory.
func (m *Metrics) WatchMemory(read func() inflight.Memory) {
	m.registry.MustRegister(memoryCollector(read))
}

var (
	memoryDesc = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "memory_budget_bytes"),
		"Memory for payloads in flight, their results and related data: the maximum (limit) and the reserved amount (used).",
		[]string{"state"}, nil)
	memoryWaitsDesc = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "memory_budget_waits_total"),
		"Times that a payload had to wait for memory.", nil, nil)
)

type memoryCollector func() inflight.Memory

// Describe implements prometheus.Collector.
func (c memoryCollector) Describe(to chan<- *prometheus.Desc) {
	to <- memoryDesc
	to <- memoryWaitsDesc
}

// Collect implements prometheus.Collector.
func (c memoryCollector) Collect(to chan<- prometheus.Metric) {
	m := c()
	to <- prometheus.MustNewConstMetric(memoryDesc, prometheus.GaugeValue, float64(m.Limit), "limit")
	to <- prometheus.MustNewConstMetric(memoryDesc, prometheus.GaugeValue, float64(m.Used), "used")
	to <- prometheus.MustNewConstMetric(memoryWaitsDesc, prometheus.CounterValue, float64(m.Waits))
}

// WatchInHand makes every scrape report how many batches with payloads are being filled, computed or settled.
func (m *Metrics) WatchInHand(batches func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "in_hand_batches", Help: "Batches with payloads that are being filled, computed or settled.",
	}, func() float64 { return float64(batches()) }))
}
