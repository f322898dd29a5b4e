package telemetry

import (
	"time"

	"millrace/internal/ingest/inflight"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits are settings that other figures are judged by. They are metrics too, so that an alert needs no copy of the
// configuration: how full a batch is, and how near to AckWait an acknowledgement came, are shares of them.
type Limits struct {
	BatchBytes    int           // a batch closes at this size
	BatchPayloads int           // or at this count
	AckWait       time.Duration // the consumer's
}

// SetLimits makes the limits appear. It is called once, when the consumer is known.
func (m *Metrics) SetLimits(l Limits) {
	gauge(m.registry, "batch_limit_bytes", "Bytes at which a batch closes.").Set(float64(l.BatchBytes))
	gauge(m.registry, "batch_limit_payloads", "Payloads at which a batch closes.").Set(float64(l.BatchPayloads))
	gauge(m.registry, "ack_wait_seconds", "AckWait of the consumer: how long the server waits for an acknowledgement before it delivers again.").Set(l.AckWait.Seconds())
}

// WatchHeldBack makes every scrape read how many payloads are held back: they fail alone, and no other has come right since.
func (m *Metrics) WatchHeldBack(payloads func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "held_back_payloads",
		Help: "Payloads on which an operator fails alone while no other payload has come right since: they are not given up, and are tried again later.",
	}, func() float64 { return float64(payloads()) }))
}

// WatchPartitions makes every scrape read how many partitions the worker has to itself.
func (m *Metrics) WatchPartitions(partitions func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "partitions_owned",
		Help: "Partitions that this worker has to itself, with exclusive delivery.",
	}, func() float64 { return float64(partitions()) }))
}

// WatchMemory makes every scrape read how much memory payloads in hand take, of how much they may, and how often the next had to wait.
func (m *Metrics) WatchMemory(read func() inflight.Memory) {
	m.registry.MustRegister(memoryCollector(read))
}

var (
	memoryDesc = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "memory_budget_bytes"),
		"Memory for payloads in hand, their results and everything that belongs to them: what they may take (limit) and what is set aside (used).",
		[]string{"state"}, nil)
	memoryWaitsDesc = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "memory_budget_waits_total"),
		"Times that the next payload had to wait for memory.", nil, nil)
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

// WatchInHand makes every scrape read how many batches that hold payloads are being filled, computed or settled.
func (m *Metrics) WatchInHand(batches func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "in_hand_batches", Help: "Batches with payloads that are being filled, computed or settled.",
	}, func() float64 { return float64(batches()) }))
}
