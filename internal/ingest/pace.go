package ingest

import (
	"sync/atomic"
	"time"
)

// pace says when a batch that is not full is worth sending on its way. Storing ten results takes the server about as long
// as storing a thousand. So while enough batches are on their way to keep it busy, another small one gains nothing by going
// at once: what comes until one of them is settled joins it. With few inputs nothing is on its way, and no payload waits.
type pace struct {
	enough  int32
	under   atomic.Int32  // batches submitted and not settled
	storing atomic.Int32  // of those, the ones that the device is done with
	all     *atomic.Int32 // batches of all partitions under way, where results are stored in order; nil where they are not
	eased   chan struct{} // tokens for those who wait, when there are fewer than enough again
}

const (
	// enoughForLink is how many batches on their way keep a connection busy that stores results with shared delivery. With
	// more each would be smaller.
	enoughForLink = 4

	// enoughInOrder is how many keep a partition busy, whose results are stored batch after batch: while those of one are, the
	// next is computed. One is enough while another partition's makes up for it.
	enoughInOrder = 2

	// paceWait bounds how much longer than the linger a batch may wait: those whose results cannot be stored are on their
	// way for long.
	paceWait = 100 * time.Millisecond
)

// newPace makes a pace for results that are stored in no order over so many connections, and for so many who may wait.
func newPace(links, waiters int) *pace {
	return &pace{enough: int32(enoughForLink * links), eased: make(chan struct{}, waiters)}
}

// newPaceInOrder makes a partition's pace, for one who waits. all is what the paces of the worker's other partitions count in too.
func newPaceInOrder(all *atomic.Int32) *pace {
	return &pace{enough: enoughInOrder, all: all, eased: make(chan struct{}, 1)}
}

// kept says whether enough batches are on their way.
func (p *pace) kept() bool {
	n := p.under.Load()
	return n >= p.enough || p.all != nil && n > 0 && p.all.Load() >= p.enough
}

// behind says whether one more could not be stored any sooner if it went: then it outlasts its linger. Where results are stored in no
// order, what is still on the device does not count, since a batch that went would be computed beside it.
func (p *pace) behind() bool {
	if p.all != nil {
		return p.kept()
	}
	return p.storing.Load() >= p.enough
}

// start counts a batch that is submitted.
func (p *pace) start() {
	p.under.Add(1)
	if p.all != nil {
		p.all.Add(1)
	}
}

// store counts it among those that the device is done with.
func (p *pace) store() { p.storing.Add(1) }

// end counts one that is settled, or refused; stored says whether store counted it.
func (p *pace) end(stored bool) {
	p.under.Add(-1)
	if p.all != nil {
		p.all.Add(-1)
	}
	if stored {
		p.storing.Add(-1)
	}
	if p.kept() && p.behind() {
		return
	}
	select {
	case p.eased <- struct{}{}:
	default: // every waiter has one
	}
}
