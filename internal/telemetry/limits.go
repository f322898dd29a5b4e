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
	m.factory.NewGauge(prometheus.GaugeOpts{Name: "batch_limit_bytes", Help: "Bytes at which a batch closes."}).Set(float64(l.BatchBytes))
	m.factory.NewGauge(prometheus.GaugeOpts{Name: "batch_limit_payloads", Help: "Payloads at which a batch closes; each record of a frame is one."}).Set(float64(l.BatchPayloads))
	m.factory.NewGauge(prometheus.GaugeOpts{Name: "ack_wait_seconds", Help: "AckWait of the consumer: how long the server waits for an acknowledgement before it delivers a message again."}).Set(l.AckWait.Seconds())
}

// WatchHeldBack makes every scrape report how many payloads are held back: an operator fails on each of them alone, and
// no other payload has succeeded since.
func (m *Metrics) WatchHeldBack(payloads func() int) {
	m.watch("held_back_payloads", "Payloads held back because an operator fails on each of them alone and no other payload has succeeded since; they are retried later.", payloads)
}

// WatchConnected makes every scrape report whether all connections to NATS are up.
func (m *Metrics) WatchConnected(connected func() bool) {
	m.watch("nats_connected", "1 while all connections to NATS are up, else 0; also 0 while the worker waits for NATS at its start.", func() int {
		if connected() {
			return 1
		}
		return 0
	})
}

// WatchPartitions makes every scrape report how many partitions the worker owns.
func (m *Metrics) WatchPartitions(partitions func() int) {
	m.watch("partitions_owned", "Partitions that this worker owns, with exclusive delivery. A worker owns an assigned partition from its first input on, so 0 is normal while no inputs come.", partitions)
}

// WatchInHand makes every scrape report how many batches with payloads are being filled, computed or settled.
func (m *Metrics) WatchInHand(batches func() int) {
	m.watch("in_hand_batches", "Batches with payloads that are being filled, computed or settled.", batches)
}

// watch registers a gauge that every scrape reads.
func (m *Metrics) watch(name, help string, read func() int) {
	m.factory.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(read()) })
}

// WatchMemory makes every scrape report how much memory the payloads in flight use, the limit for it, and how often a
// payload had to wait for memory.
func (m *Metrics) WatchMemory(read func() inflight.Memory) {
	budget := func(state string, bytes func() float64) {
		m.factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "memory_budget_bytes",
			Help:        "Memory for payloads in flight, their results and related data: the maximum (limit) and the reserved amount (used).",
			ConstLabels: prometheus.Labels{"state": state},
		}, bytes)
	}
	budget("limit", func() float64 { return float64(read().Limit) })
	budget("used", func() float64 { return float64(read().Used) })
	m.factory.NewCounterFunc(prometheus.CounterOpts{
		Name: "memory_budget_waits_total", Help: "Times that a payload had to wait for memory.",
	}, func() float64 { return float64(read().Waits) })
}
