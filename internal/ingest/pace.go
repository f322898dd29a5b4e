package ingest

import (
	"sync/atomic"
	"time"
)

// pace says when a batch that is not full is worth sending on its way. Storing ten results takes the server about as long
// as storing a thousand. So while enough batches are on their way to keep it busy, another small one gains nothing by going
// at once: what comes until one of them is settled joins it. With few inputs nothing is on its way, and no payload waits.
type pace struct {
	enough int32
	under  atomic.Int32  // batches submitted and not settled
	eased  chan struct{} // tokens for those who wait, when there are fewer than enough again
}

// newPace makes a pace for which enough batches on their way are enough, and for so many who may wait.
func newPace(enough, waiters int) *pace {
	return &pace{enough: int32(enough), eased: make(chan struct{}, waiters)}
}

// kept says whether enough batches are on their way.
func (p *pace) kept() bool { return p.under.Load() >= p.enough }

// start counts a batch that is submitted.
func (p *pace) start() { p.under.Add(1) }

// end counts one that is settled, or refused.
func (p *pace) end() {
	if p.under.Add(-1) >= p.enough {
		return
	}
	select {
	case p.eased <- struct{}{}:
	default: // every waiter has one
	}
}

// storedInOrder is how many batches of a partition are enough on their way: its results are stored batch after batch, and
// while those of one are, the next is computed.
const storedInOrder = 2

// paceWait bounds how much longer than the linger a batch waits for others on their way: those whose results cannot be stored
// stay there for long, and other payloads are not to wait for that.
const paceWait = 100 * time.Millisecond
