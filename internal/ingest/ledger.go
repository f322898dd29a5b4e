package ingest

import (
	"context"
	"sync"
	"time"

	"millrace/internal/ingest/inflight"
)

// remembered is how many settled inputs a ledger knows: what a worker settles in a second or so, and far more than
// it can have in hand without having read it.
const remembered = 1 << 16

// ledger knows which inputs this worker has in hand and which it has settled lately. The server delivers again
// whatever waited longer than AckWait, in the client's queue too; such a delivery says nothing against the
// payload, must not count as another try, and need not be computed again.
type ledger struct {
	mu      sync.Mutex
	held    map[uint64]time.Time // by sequence: when the stream stored it, since a stream made anew starts over
	settled map[uint64]time.Time
	order   []uint64 // the keys of settled, oldest first from next on
	next    int

	returned map[uint64]time.Time // given back by this worker, which knows why
	awaited  int                  // how few must be held for whoever waits
	fewer    chan struct{}        // closed then; nil while nobody waits
}

func newLedger() *ledger {
	return &ledger{held: map[uint64]time.Time{}, settled: make(map[uint64]time.Time, remembered)}
}

// standing is what a ledger knows of a delivery.
type standing uint8

const (
	unknown standing = iota // not in hand: it is now
	inHand                  // an earlier delivery of it is in hand
	done                    // its result or its dead letter is stored
)

// take enters a delivery, unless its input is known. A first delivery of what is settled is a replay: somebody made
// the consumer anew to have it computed again, and it is.
func (l *ledger) take(d *inflight.Delivery) standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.held[d.Sequence]; ok && at.Equal(d.Stored) {
		return inHand
	}
	if at, ok := l.settled[d.Sequence]; ok && at.Equal(d.Stored) && d.NumDelivered > 1 {
		return done
	}
	l.held[d.Sequence] = d.Stored
	return unknown
}

// giveBack notes that a delivery was not settled and is to come again.
func (l *ledger) giveBack(d *inflight.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(d)
	if l.returned == nil || len(l.returned) >= remembered {
		l.returned = map[uint64]time.Time{} // it does not grow without a bound; whose return is forgotten is a suspect
	}
	l.returned[d.Sequence] = d.Stored
}

// gaveBack says whether this worker has given that input back. It lives, so the input is not what breaks the device.
func (l *ledger) gaveBack(d *inflight.Delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.returned[d.Sequence]
	return ok && at.Equal(d.Stored)
}

// release takes a delivery out of what is held, and wakes who waits for that. l.mu is held.
func (l *ledger) release(d *inflight.Delivery) {
	delete(l.held, d.Sequence)
	if l.fewer != nil && len(l.held) <= l.awaited {
		close(l.fewer)
		l.fewer = nil
	}
}

// await returns nil once no more than n inputs are in hand, or ctx's error. One goroutine at a time may wait.
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

// size is how many inputs are in hand.
func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}
