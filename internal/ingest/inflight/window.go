package inflight

import (
	"sync"
	"sync/atomic"
	"time"
)

// Window is the publish window. It counts batches in flight and decides whether a partly filled batch should wait. The
// server stores a thousand results in about the same time as ten. An early submission therefore gains nothing while the
// batches in flight keep the server busy. With few inputs, no batch is in flight and no payload waits.
type Window struct {
	size       int32
	inFlight   atomic.Int32  // batches that are submitted and not settled
	publishing atomic.Int32  // batches in flight that are being published
	all        *atomic.Int32 // batches in flight of all partitions on a device; nil if results are stored in any order

	mu      sync.Mutex
	waiters []chan struct{} // of the packers
}

const (
	// batchesPerConnection is the number of batches in flight that keep a connection busy with shared delivery. More
	// batches would only be smaller.
	batchesPerConnection = 4

	// batchesInOrder is the number of batches in flight that keep a partition busy. One batch is stored while the next
	// is computed. One batch is enough while another partition has a batch in flight, because computing takes little
	// time compared with storing.
	batchesInOrder = 2

	// WindowWait is the maximum time that an open batch waits beyond the linger. Without this bound, batches would wait while
	// the server can't store results.
	WindowWait = 100 * time.Millisecond
)

// NewWindow returns a window for results that are stored in any order, over the given number of connections.
func NewWindow(links int) *Window { return &Window{size: int32(batchesPerConnection * links)} }

// NewOrderedWindow returns a partition's window. The windows of all partitions on a device share the counter all.
func NewOrderedWindow(all *atomic.Int32) *Window { return &Window{size: batchesInOrder, all: all} }

// notifies makes the window signal the given channels when it may have space again.
func (p *Window) notifies(waiters []chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters = waiters
}

// IsFull reports whether enough batches are in flight.
func (p *Window) IsFull() bool {
	n := p.inFlight.Load()
	return n >= p.size || p.all != nil && n > 0 && p.all.Load() >= p.size
}

// PublishFull reports whether a batch should wait beyond its linger, because an earlier submission would gain next to
// nothing. If results are stored in any order, it ignores batches on the device, because several can be computed at the
// same time.
func (p *Window) PublishFull() bool {
	if p.all != nil {
		return p.IsFull()
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

// StartPublish counts a submitted batch as being published.
func (p *Window) StartPublish() { p.publishing.Add(1) }

// Leave removes a batch that is stored or refused. stored reports whether StartPublish counted the batch. Leave
// signals the packers of the window's queue.
func (p *Window) Leave(stored bool) {
	p.inFlight.Add(-1)
	if p.all != nil {
		p.all.Add(-1)
	}
	if stored {
		p.publishing.Add(-1)
	}
	if p.IsFull() && p.PublishFull() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.waiters {
		notify(c)
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // the last signal was not received yet
	}
}
