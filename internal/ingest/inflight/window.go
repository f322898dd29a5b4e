package inflight

import (
	"sync"
	"sync/atomic"
	"time"
)

// Window is the publish window: it counts batches in flight and decides whether a batch that is not full should wait. Storing ten
// results takes the server about as long as storing a thousand. So while enough batches are in flight to keep the server busy, a small
// one gains nothing by going at once, and payloads join it until a batch in flight is settled. With few inputs no batch is in flight and
// no payload waits.
type Window struct {
	size       int32
	inFlight   atomic.Int32  // batches that are submitted and not settled
	publishing atomic.Int32  // of those, the ones whose results are being published
	all        *atomic.Int32 // batches in flight of all partitions on a device, if results are stored in order; otherwise nil

	mu      sync.Mutex
	waiters []chan struct{} // one channel per Join
}

const (
	// batchesPerConnection is how many batches in flight keep a connection busy with shared delivery. The publisher takes more at once,
	// but the more there are, the smaller each is.
	batchesPerConnection = 4

	// batchesInOrder is how many keep a partition busy, whose results are stored batch after batch: one is stored while the next is
	// computed. One is enough while another partition has a batch in flight, since computing takes little time compared with storing.
	batchesInOrder = 2

	// WindowWait bounds how much longer than the linger a batch may wait. Batches whose results cannot be stored stay in flight for long.
	WindowWait = 100 * time.Millisecond
)

// NewWindow makes a window for results that are stored in no order over so many connections.
func NewWindow(links int) *Window { return &Window{size: int32(batchesPerConnection * links)} }

// NewOrderedWindow makes a partition's window. The windows of the device's other partitions share all.
func NewOrderedWindow(all *atomic.Int32) *Window { return &Window{size: batchesInOrder, all: all} }

// Join returns a channel that is signalled when the window may have room again.
func (p *Window) Join() (eased <-chan struct{}) {
	c := make(chan struct{}, 1)
	p.mu.Lock()
	p.waiters = append(p.waiters, c)
	p.mu.Unlock()
	return c
}

// Full reports whether enough batches are in flight.
func (p *Window) Full() bool {
	n := p.inFlight.Load()
	return n >= p.size || p.all != nil && n > 0 && p.all.Load() >= p.size
}

// PublishFull reports whether a batch should wait beyond its linger, because it would gain next to nothing by going. If results are
// stored in no order, batches on the device do not count, since another batch would be computed beside them.
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

// StartPublish counts it as one whose results are being published.
func (p *Window) StartPublish() { p.publishing.Add(1) }

// Leave removes a batch that is settled or refused. stored says whether StartPublish counted it. Leave signals only this window, not
// those of other partitions: they check again when their linger is over or a batch of their own ends.
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
		default: // the last signal was not received yet
		}
	}
}
