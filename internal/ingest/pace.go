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
	extra  time.Duration // how much longer than the linger a batch may wait
	under  atomic.Int32  // batches submitted and not settled
	eased  chan struct{} // tokens for those who wait, when there are fewer than enough again
}

// enoughForLink is how many batches on their way keep a connection busy that stores results with shared delivery. With more
// each would be smaller.
const enoughForLink = 4

// newPace makes a pace for which enough batches on their way are enough, and for so many who may wait.
func newPace(enough, waiters int) *pace {
	return &pace{enough: int32(enough), eased: make(chan struct{}, waiters)}
}

// newPaceInOrder makes a partition's pace, for one who waits. Its results are stored batch after batch, and while those of one are,
// the next is computed: two are enough. What is behind them could not be stored any sooner if it went, so it outlasts the linger.
func newPaceInOrder() *pace {
	p := newPace(2, 1)
	p.extra = paceWait
	return p
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

// paceWait bounds that: batches whose results cannot be stored are on their way for long.
const paceWait = 100 * time.Millisecond
