package inflight

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/memory"
	"millrace/internal/streams"
)

// Owner is the lease to which the deliveries of a queue belong.
type Owner interface {
	// Packed receives each group of the lease's deliveries when the group's batch is full, before the batch is submitted. The groups arrive
	// in the order of their deliveries. Packed must not block.
	Packed(g *Batch)

	// Encode encodes the results of a group. The buffers of completed are released afterwards.
	Encode(g *Batch, completed *streams.Batch)

	// Unread receives a delivery that will not be packed.
	Unread(d Delivery)
}

// Queue holds the deliveries of one lease between the pull and the packers, so that neither has to wake the other for each delivery. It
// limits the number of deliveries and their bytes, because QueueMax payloads of the largest size would take most of a worker's memory. A
// single delivery may exceed the byte limit. Only one goroutine may call Put.
type Queue struct {
	Share  *memory.Share // share of the deliveries' memory; nil if the worker has no other lease. It is set before the first Put.
	owner  Owner
	window *Window
	limit  int // maximum number of waiting deliveries
	size   int // maximum number of groups
	closed atomic.Bool
	// leaving is set when the queue is closed or detached. Batches with its deliveries then wait for no others.
	leaving atomic.Bool
	space   chan struct{} // signalled when a delivery has left the queue

	mu        sync.Mutex
	waiting   []Delivery // the deliveries from first on wait
	first     int
	bytes     int64  // bytes of the waiting deliveries, including headers
	feed      *Feed  // nil while no packer takes deliveries
	scheduled bool   // whether feed.ready has the queue, or a packer visits it
	visited   bool   // whether a packer visits the queue
	share     int64  // bytes that the packer may still take in this round
	groups    int    // groups that are not recycled yet
	held      int    // groups in batches that are being filled, and deliveries that didn't fit into the last batch
	detach    func() // called by Detach; may be nil
	changed   chan struct{}
}

const (
	// QueueMax is the maximum number of queued deliveries.
	QueueMax = memory.Queued

	// queueBytes is the maximum number of queued bytes, including headers. It equals the byte limit of a pull request.
	queueBytes = memory.RequestBytes

	// quantum is the number of bytes that a visit of a packer adds to a queue's share.
	quantum = 64 << 10
)

func queuedBytes(d *Delivery) int64 { return int64(len(d.Msg.Data()) + d.HeaderBytes) }

// Put waits for space and appends d. It returns false if ctx ends first.
func (q *Queue) Put(ctx context.Context, d Delivery) bool {
	for !q.append(&d) {
		select {
		case <-q.space:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// append appends d if there is space.
func (q *Queue) append(d *Delivery) bool {
	n := queuedBytes(d)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting)-q.first >= q.limit || q.bytes > 0 && q.bytes+n > queueBytes {
		return false
	}
	if q.first > 0 && len(q.waiting) == cap(q.waiting) {
		n := copy(q.waiting, q.waiting[q.first:])
		clear(q.waiting[n:]) // release the messages
		q.waiting, q.first = q.waiting[:n], 0
	}
	q.waiting = append(q.waiting, *d)
	q.bytes += n
	q.schedule()
	q.notify()
	return true
}

// schedule makes a packer visit the queue if it has deliveries that may be packed. The caller holds q.mu.
func (q *Queue) schedule() {
	if q.feed != nil && !q.scheduled && q.first < len(q.waiting) && (q.mayBegin() || q.held > 0) {
		q.scheduled = true
		q.feed.ready <- q // the channel has space for every queue
	}
}

// mayBegin reports whether a new group of the queue may begin. Results that are stored in order wait for the groups before them, so a group
// that begins while the window is full would only be smaller. The caller holds q.mu.
func (q *Queue) mayBegin() bool {
	isLong := len(q.waiting)-q.first >= q.limit/2 || q.bytes >= queueBytes/2
	return q.groups < q.size && (isLong || q.window == nil || q.window.all == nil || !q.window.IsFull())
}

// begin begins a packer's visit to a queue that was in feed.ready. It returns false if the queue was detached.
func (q *Queue) begin(feed *Feed) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.feed != feed || q.visited {
		return false
	}
	q.visited = true
	q.share += quantum
	return true
}

// take removes the first delivery. If there is none, the queue's share is used up, or no new group may begin, take ends the
// visit and returns false. alone reports whether no other queue waits for the packer. joins reports whether the packer's batch has a group
// of the queue.
func (q *Queue) take(alone, joins bool) (d Delivery, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.feed == nil || q.first == len(q.waiting) || !joins && !q.mayBegin():
		q.share = 0
		q.leave(false)
		return d, false
	case !alone && queuedBytes(&q.waiting[q.first]) > q.share:
		q.leave(true)
		return d, false
	}
	return q.pop(), true
}

// pop removes the first delivery. The caller holds q.mu.
func (q *Queue) pop() Delivery {
	d := q.waiting[q.first]
	q.waiting[q.first] = Delivery{} // release the message
	if q.first++; q.first == len(q.waiting) {
		q.waiting, q.first = q.waiting[:0], 0
	}
	n := queuedBytes(&d)
	q.bytes -= n
	q.share = max(q.share-n, 0)
	notify(q.space)
	q.notify()
	return d
}

// unpop puts a delivery back at the front.
func (q *Queue) unpop(d Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.Insert(q.waiting, q.first, d)
	q.bytes += queuedBytes(&d)
}

// putBack puts a frame back that there is no memory for, and ends the visit. The queue is visited again when a group of it is recycled.
func (q *Queue) putBack(d Delivery) {
	q.unpop(d)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leave(q.groups == 0)
}

// mayForce reports whether the next frame of the queue may take memory beyond the limit. If the queue has its own share of the memory, that
// is only possible while none of its groups is in flight. Otherwise, a lease that can't store would take all memory.
func (q *Queue) mayForce() bool {
	if q.Share == nil {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.groups == 0
}

// leave ends a visit. again reports whether the queue may have more deliveries to pack. The caller holds q.mu.
func (q *Queue) leave(again bool) {
	q.visited, q.scheduled = false, false
	if again {
		q.schedule()
	}
	q.notify()
}

// end ends a visit because the packer's batch is full.
func (q *Queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leave(true)
}

// hold changes the number of groups by groups, and that of held groups and deliveries by held.
func (q *Queue) hold(groups, held int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.groups += groups
	q.held += held
	q.schedule()
	q.notify()
}

// Get removes the first delivery. It returns false if there is none.
func (q *Queue) Get() (d Delivery, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.first == len(q.waiting) {
		return d, false
	}
	return q.pop(), true
}

// Close makes packers close batches that have deliveries of the queue, because no more deliveries follow.
func (q *Queue) Close() {
	q.closed.Store(true)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.notify()
	q.release()
}

// release makes the packers submit the batches with the queue's deliveries. The caller holds q.mu.
func (q *Queue) release() {
	q.leaving.Store(true)
	if q.feed != nil {
		q.feed.signal()
	}
}

// onDetach makes Detach call cancel, until the returned function is called. If the queue is detached already, it calls cancel at once.
func (q *Queue) onDetach(cancel func()) (end func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.feed == nil {
		cancel()
	}
	q.detach = cancel
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.detach = nil
	}
}

// Await waits for a delivery. It returns false if the queue is closed and empty, or ctx ends first.
func (q *Queue) Await(ctx context.Context) bool {
	q.wait(ctx, func() bool { return q.first < len(q.waiting) || q.closed.Load() })
	q.mu.Lock()
	defer q.mu.Unlock()
	return ctx.Err() == nil && q.first < len(q.waiting)
}

// AwaitIdle waits until every delivery is packed and every group is recycled, or ctx ends.
func (q *Queue) AwaitIdle(ctx context.Context) {
	q.wait(ctx, func() bool { return q.first == len(q.waiting) && !q.visited && q.held == 0 && q.groups == 0 })
}

// Detach makes packers take no more deliveries. It waits until all deliveries that they have taken are packed. Afterwards, Get returns the
// remaining deliveries.
func (q *Queue) Detach() {
	q.mu.Lock()
	q.release()
	q.feed = nil
	if q.detach != nil {
		q.detach()
	}
	q.mu.Unlock()
	q.wait(context.Background(), func() bool { return !q.visited && q.held == 0 })
}

// wait waits until done returns true, or ctx ends. done is called with q.mu locked.
func (q *Queue) wait(ctx context.Context, done func() bool) {
	q.mu.Lock()
	for !done() {
		if q.changed == nil {
			q.changed = make(chan struct{})
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		q.mu.Lock()
	}
	q.mu.Unlock()
}

// notify wakes the goroutines in wait. The caller holds q.mu.
func (q *Queue) notify() {
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// Feed passes the deliveries of many queues to packers. Packers visit the queues in deficit round robin: each visit adds quantum bytes to
// the queue's share, and packs as many deliveries as the share allows. So each queue gets an equal share of the batches' bytes.
type Feed struct {
	ready chan *Queue     // queues that have deliveries, each at most once
	freed []chan struct{} // signalled to make each packer check its batch
}

// maxQueues is the maximum number of queues of a feed.
const maxQueues = 1 << 16

// NewFeed returns a feed without packers and queues.
func NewFeed() *Feed { return &Feed{ready: make(chan *Queue, maxQueues)} }

// Attach makes the feed's packers take the deliveries of q, until Queue.Detach.
func (f *Feed) Attach(q *Queue) {
	q.window.notifies(f.freed)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.feed, q.scheduled = f, false
	q.leaving.Store(false)
	q.schedule()
}

// signal makes each packer check its batch.
func (f *Feed) signal() {
	for _, c := range f.freed {
		notify(c)
	}
}

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
