package shared

import (
	"context"
	"sync"
	"time"

	"millrace/internal/ingest/inflight"
)

// ledger records which inputs this worker has in flight and which it has settled lately. The server redelivers an input that waited longer
// than AckWait, even in the client's queue. Such a redelivery does not count as another try and is not computed again.
type ledger struct {
	mu      sync.Mutex
	held    map[uint64]time.Time // when the stream stored each, by sequence, because a recreated stream reuses sequences
	settled map[uint64]time.Time
	order   []uint64 // the keys of settled, oldest first from next on
	next    int

	returned map[uint64]time.Time // given back by this worker
	awaited  int                  // how many may be held when await returns
	fewer    chan struct{}        // closed then; nil while no goroutine waits
}

const (
	// remembered is how many settled inputs a ledger knows: as many as a worker settles in about a second.
	remembered = 1 << 16

	// LedgerBytes is the memory of a full ledger, for inputs that are settled or were given back.
	LedgerBytes = 12 << 20
)

func newLedger() *ledger {
	return &ledger{held: map[uint64]time.Time{}, settled: make(map[uint64]time.Time, remembered)}
}

// standing is what a ledger knows of a delivery.
type standing uint8

const (
	unknown  standing = iota // it was not in flight, and is now
	inFlight                 // an earlier delivery of it is in flight
	done                     // its result or its dead letter is stored
)

// take records a delivery, unless its input is known. A first delivery of a settled input is a replay by a recreated consumer, and is
// computed again.
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

// giveBack notes that a delivery was given back and will be redelivered.
func (l *ledger) giveBack(d *inflight.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(d)
	if l.returned == nil || len(l.returned) >= remembered {
		l.returned = map[uint64]time.Time{} // bounded; a forgotten input is quarantined
	}
	l.returned[d.Sequence] = d.Stored
}

// gaveBack reports whether this worker has given an input back. The process lives, so the input did not break the device.
func (l *ledger) gaveBack(d *inflight.Delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.returned[d.Sequence]
	return ok && at.Equal(d.Stored)
}

// release removes a delivery from those in flight, and wakes await. l.mu is held.
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

// settle notes that the result or the dead letter of a delivery is stored.
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

// size is how many inputs are in flight.
func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}
