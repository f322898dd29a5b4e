package console

import (
	"fmt"
	"sync/atomic"
	"time"

	"millrace/internal/ingest"
	"millrace/internal/ingest/inflight"
)

// Meter counts settled inputs for progress lines. It is an ingest.Observer that forwards every call to the next
// observer.
type Meter struct {
	ingest.Observer // the next observer

	outcomes [inflight.NumOutcomes]atomic.Int64
	bytes    atomic.Int64
	pending  atomic.Uint64
}

// NewMeter returns a meter that forwards every call to next.
func NewMeter(next ingest.Observer) *Meter { return &Meter{Observer: next} }

// Settled implements ingest.Observer.
func (m *Meter) Settled(o inflight.Outcome, in, out int, latency, headroom time.Duration) {
	m.outcomes[o].Add(1)
	if o == inflight.Published {
		m.bytes.Add(int64(in))
	}
	m.Observer.Settled(o, in, out, latency, headroom)
}

// Pending implements ingest.Observer.
func (m *Meter) Pending(n uint64) { m.pending.Store(n); m.Observer.Pending(n) }

// Reading holds the counts of a meter. Bytes is the total size of the payloads whose results were published.
type Reading struct {
	Published, DeadLettered, Nacked, Bytes int64
	Pending                                uint64
}

// Read returns the counts so far.
func (m *Meter) Read() Reading {
	return Reading{
		Published:    m.outcomes[inflight.Published].Load(),
		DeadLettered: m.outcomes[inflight.DeadLettered].Load(),
		Nacked:       m.outcomes[inflight.Nacked].Load(),
		Bytes:        m.bytes.Load(),
		Pending:      m.pending.Load(),
	}
}

// Line formats a progress line with the totals of now and the rates between the two readings.
func Line(before, now Reading, elapsed time.Duration) string {
	seconds := max(elapsed.Seconds(), 1e-9)
	return fmt.Sprintf("%s payloads  %s/s  %s/s  %s waiting  %d dead-lettered  %d given back",
		Count(now.Published), Count(int64(float64(now.Published-before.Published)/seconds)),
		Bytes(float64(now.Bytes-before.Bytes)/seconds), Count(int64(now.Pending)), now.DeadLettered, now.Nacked)
}
