package lease

import (
	"context"
	"sync"
	"time"

	"millrace/internal/ingest/inflight"
)

// ledger records the inputs that this worker has in flight or has recently settled. The server redelivers an input
// after AckWait, even if the input is still in the client's queue. Such a redelivery doesn't increase the quarantine
// level, and the input isn't computed again.
type ledger struct {
	mu sync.Mutex
	// held contains, by sequence, the time when the stream stored the input. A recreated stream reuses sequences.
	held    map[uint64]time.Time
	settled map[uint64]time.Time
	order   []uint64 // keys of settled, as a ring; the oldest key is at next
	next    int

	returned map[uint64]time.Time // inputs that this worker gave back
	awaited  int                  // number of held inputs at which await returns
	fewer    chan struct{}        // closed when the number of held inputs reaches awaited; nil while no goroutine waits
}

// remembered is the maximum number of settled inputs in a ledger. A worker settles about as many in a second. Package memory
// reserves the memory for as many settled and as many returned inputs.
const remembered = 1 << 16

func newLedger() *ledger {
	return &ledger{held: map[uint64]time.Time{}, settled: make(map[uint64]time.Time, remembered)}
}

// standing is the state of a delivery in the ledger.
type standing uint8

const (
	unknown  standing = iota // the input was not in the ledger, and is in flight now
	inFlight                 // an earlier delivery of the input is in flight
	done                     // the input's result or dead letter is stored
)

// take returns the state of a delivery's input, and records an unknown input as in flight. If a settled input is
// delivered for the first time, a recreated consumer replays it. The input is then unknown and computed again.
func (l *ledger) take(d *inflight.Delivery) standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.held[d.Sequence]; ok && at.Equal(d.Stored) {
		return inFlight
	}
	if at, ok := l.settled[d.Sequence]; ok && at.Equal(d.Stored) && d.NumDelivered > 1 {
		return done
	}
	l.held[d.Sequence] = d.Stored
	return unknown
}

// giveBack records that a delivery was given back and will be redelivered.
func (l *ledger) giveBack(d *inflight.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(d)
	if l.returned == nil || len(l.returned) >= remembered {
		l.returned = map[uint64]time.Time{} // bounds the map; a dropped input is quarantined
	}
	l.returned[d.Sequence] = d.Stored
}

// gaveBack reports whether this worker gave an input back. The process survived the input, so the input did not break
// the device.
func (l *ledger) gaveBack(d *inflight.Delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.returned[d.Sequence]
	return ok && at.Equal(d.Stored)
}

// release removes a delivery's input from held, and wakes await. The caller holds l.mu.
func (l *ledger) release(d *inflight.Delivery) {
	delete(l.held, d.Sequence)
	if l.fewer != nil && len(l.held) <= l.awaited {
		close(l.fewer)
		l.fewer = nil
	}
}

// await waits until at most n inputs are in flight, or returns ctx's error. Only one goroutine may wait at a time.
func (l *ledger) await(ctx context.Context, n int) error {
	l.mu.Lock()
	if len(l.held) <= n {
		l.mu.Unlock()
		return nil
	}
	fewer := make(chan struct{})
	l.awaited, l.fewer = n, fewer
	l.mu.Unlock()
	select {
	case <-fewer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle records that the result or the dead letter of a delivery is stored.
func (l *ledger) settle(d *inflight.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(d)
	delete(l.returned, d.Sequence)
	if _, again := l.settled[d.Sequence]; !again {
		if len(l.order) < remembered {
			l.order = append(l.order, d.Sequence)
		} else {
			delete(l.settled, l.order[l.next])
			l.order[l.next] = d.Sequence
			l.next = (l.next + 1) % remembered
		}
	}
	l.settled[d.Sequence] = d.Stored
}

// size returns the number of inputs in flight.
func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}
