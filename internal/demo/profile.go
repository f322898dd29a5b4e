package demo

import (
	"slices"
	"sync"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// maxSamples is the maximum number of batches whose durations are kept for quantiles.
const maxSamples = 1 << 14

// Profile collects the batch statistics for the closing table. It implements telemetry.Observer.
type Profile struct {
	mu       sync.Mutex
	batches  int
	payloads int
	bytes    int
	closed   [streams.NumCloseReasons]int
	stages   [inflight.NumStages][]time.Duration
}

// BatchDone implements inflight.RecordObserver. It counts a batch of several leases once.
func (p *Profile) BatchDone(r *inflight.Record) {
	if r.Part > 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batches++
	p.payloads += r.Payloads
	p.bytes += r.Bytes
	p.closed[r.Closed]++
	if p.batches > maxSamples {
		return
	}
	for s, span := range r.Spans() {
		if span != (streams.Span{}) { // a batch in place has no copies
			p.stages[s] = append(p.stages[s], span.Duration())
		}
	}
}

// DeviceError implements streams.Observer.
func (p *Profile) DeviceError(string, string) {}

// quantile returns the quantile q of a stage's durations, or 0 if the stage has no durations.
func (p *Profile) quantile(s inflight.Stage, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(p.stages[s]))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
