// Package pace says when a batch that is not full is worth sending on its way.
package inflight

import (
	"sync"
	"sync/atomic"
	"time"
)

// Window counts the batches on their way. Storing ten results takes the server about as long
// as storing a thousand. So while enough batches are on their way to keep it busy, another small one gains nothing by going
// at once: what comes until one of them is settled joins it. With few inputs nothing is on its way, and no payload waits.
type Window struct {
	size       int32
	inFlight   atomic.Int32  // batches submitted and not settled
	publishing atomic.Int32  // of those, the ones that the device is done with
	all        *atomic.Int32 // batches of a device's partitions under way, where results are stored in order; nil where they are not

	mu      sync.Mutex
	waiters []chan struct{} // one for each who fills batches, with room for the word that there are fewer than enough
}

const (
	// batchesPerConnection is how many batches on their way keep a connection busy that stores results with shared delivery. The store
	// takes more at once, but the more there are, the smaller each is.
	batchesPerConnection = 4

	// batchesInOrder is how many keep a partition busy, whose results are stored batch after batch: while those of one are, the
	// next is computed. One is enough while another partition's makes up for it: what a device could have computed meanwhile is
	// little beside what the server takes to store it.
	batchesInOrder = 2

	// WindowWait bounds how much longer than the linger a batch may wait: those whose results cannot be stored are on their
	// way for long.
	WindowWait = 100 * time.Millisecond
)

// NewWindow makes a pace for results that are stored in no order over so many connections.
func NewWindow(links int) *Window { return &Window{size: int32(batchesPerConnection * links)} }

// NewOrderedWindow makes a partition's pace. all is what the paces of the device's other partitions count in too.
func NewOrderedWindow(all *atomic.Int32) *Window { return &Window{size: batchesInOrder, all: all} }

// Join is for who fills batches: he is told when there may be fewer than enough again.
func (p *Window) Join() (eased <-chan struct{}) {
	c := make(chan struct{}, 1)
	p.mu.Lock()
	p.waiters = append(p.waiters, c)
	p.mu.Unlock()
	return c
}

// Full says whether enough batches are on their way.
func (p *Window) Full() bool {
	n := p.inFlight.Load()
	return n >= p.size || p.all != nil && n > 0 && p.all.Load() >= p.size
}

// PublishFull says whether one more would gain next to nothing if it went, so that it outlasts its linger. Where results are stored in no
// order, what is still on the device does not count, since a batch that went would be computed beside it.
func (p *Window) PublishFull() bool {
	if p.all != nil {
		return p.Full()
	}
	return p.publishing.Load() >= p.size
}

// Enter counts a batch that is submitted.
func (p *Window) Enter() {
	p.inFlight.Add(1)
	if p.all != nil {
		p.all.Add(1)
	}
}

// StartPublish counts it among those that the device is done with.
func (p *Window) StartPublish() { p.publishing.Add(1) }

// Leave counts one that is settled, or refused; stored says whether Store counted it. Other partitions that wait are not told: they look
// again when their linger is over or a batch of their own ends.
func (p *Window) Leave(stored bool) {
	p.inFlight.Add(-1)
	if p.all != nil {
		p.all.Add(-1)
	}
	if stored {
		p.publishing.Add(-1)
	}
	if p.Full() && p.PublishFull() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.waiters {
		select {
		case c <- struct{}{}:
		default: // it has not looked since it was told
		}
	}
}
