package inflight

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/memory"
	"millrace/internal/streams"
)

// Batcher packs deliveries into batches of a pipeline, one batch at a time. Batches that fill at the same time would be
// smaller.
type Batcher struct {
	packing  sync.Mutex // held while a goroutine fills a batch, but not during the submission
	pool     *Pool
	Pipe     *streams.Pipeline
	in       *Queue
	linger   time.Duration
	Window   *Window
	freed    <-chan struct{} // signalled when the window has space
	timer    *time.Timer     // stopped, or running for the batch that is being filled
	messages int             // maximum number of messages in the batch that is being filled; 0 means no limit
	unread   func(Delivery)  // receives deliveries that are not packed

	carry    Delivery // the delivery that did not fit into the last batch
	carrying bool
	turn     *memory.Turn
}

// NewBatcher returns a batcher that reads from in. The batcher passes deliveries that it doesn't pack to unread.
func (p *Pool) NewBatcher(pipe *streams.Pipeline, in *Queue, linger time.Duration, window *Window, unread func(Delivery)) *Batcher {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &Batcher{pool: p, Pipe: pipe, in: in, linger: linger, Window: window, freed: window.Join(), timer: t, unread: unread, turn: p.NewTurn(pipe)}
}

// Reserve waits until one more batch may be in flight and, if messages may be frames, for the pipeline's turn to open a
// frame. It returns an error if ctx or the pipeline ends first. Call Reserve before taking a delivery. Otherwise a
// delivery could wait while another device is idle. Next and Drop end the turn.
func (f *Batcher) Reserve(ctx context.Context) (*Batch, error) {
	if err := f.turn.Await(ctx, f.Pipe.Over()); err != nil {
		return nil, err
	}
	g, err := f.pool.reserve(ctx, f.Pipe)
	if err != nil {
		f.turn.End(nil)
	}
	return g, err
}

// Next fills the batch that Reserve returned as g with up to the given number of messages, where 0 means no limit. The returned batch is nil if there are no more
// deliveries or the pipeline has ended.
func (f *Batcher) Next(g *Batch, messages int) (*streams.Batch, streams.CloseReason, error) {
	f.packing.Lock()
	defer f.packing.Unlock()
	first, ok := f.first()
	if !ok {
		f.turn.End(nil)
		f.pool.unreserve(g, f.Pipe)
		return nil, 0, nil
	}
	b, err := f.pool.begin(g, f.Pipe)
	if err != nil {
		f.turn.End(nil)
		f.leave(first)
		return nil, 0, err
	}
	f.messages = messages
	f.pack(b, g, first)
	return b, f.fill(b, g), nil
}

// pack appends the first delivery of a batch. Records of a frame that don't fit are packed into the next batch.
func (f *Batcher) pack(b *streams.Batch, g *Batch, d Delivery) {
	var opened *memory.Frame
	if d.Frame != nil {
		d.Frame.Open()
		opened = &d.Frame.Memory
	}
	f.turn.MidFrame.Store(false)
	f.turn.End(opened)
	if !g.Pack(b, d) {
		f.turn.MidFrame.Store(true)
		f.carry, f.carrying = d, true
	}
}

// Leave passes the remaining deliveries of the queue to unread, until the queue is closed.
func (f *Batcher) Leave() {
	f.packing.Lock()
	defer f.packing.Unlock()
	for d, ok := f.first(); ok; d, ok = f.first() {
		f.leave(d)
	}
}

// leave passes a delivery to unread. It releases the memory of a frame at once, because other batchers may wait for
// that memory.
func (f *Batcher) leave(d Delivery) {
	if d.Frame != nil {
		d.Frame.Drop()
	}
	f.unread(d)
}

// Await waits until there is a first delivery for the next batch. It returns false if the queue is closed and empty. The
// calling goroutine must be the only one that packs.
func (f *Batcher) Await() bool {
	d, ok := f.first()
	if ok {
		f.carry, f.carrying = d, true
	}
	return ok
}

// first waits for the first delivery of the next batch. It returns false if the queue is closed and empty.
func (f *Batcher) first() (Delivery, bool) {
	if f.carrying {
		d := f.carry
		f.carry, f.carrying = Delivery{}, false
		return d, true
	}
	return f.in.Get()
}

// Drop releases the delivery that did not fit into the last batch.
func (f *Batcher) Drop() {
	f.turn.End(nil)
	f.pool.Release(&f.carry)
	f.carry, f.carrying = Delivery{}, false
}

// fill adds deliveries until the batch is full or its oldest payload has waited for the linger. fill also ends when the
// queue is empty and the lane is idle, because waiting would only add latency. While the window is full, an idle lane
// doesn't end fill. If the server couldn't store the batch yet, fill waits up to WindowWait beyond the linger.
func (f *Batcher) fill(b *streams.Batch, g *Batch) streams.CloseReason {
	lingering, overdue := false, false
	defer f.timer.Stop()
	for {
		if why, full := b.IsFull(); full {
			return why
		}
		if f.carrying {
			return streams.ClosedByBytes
		}
		if f.messages > 0 && g.Messages() >= f.messages {
			return streams.ClosedByCount
		}
		select {
		case d, ok := <-f.in.ch:
			if why, closed := f.place(b, g, d, ok); closed {
				return why
			}
			continue
		default:
		}
		if b.LaneIdle() && !f.Window.IsFull() || overdue && !f.Window.PublishFull() {
			return streams.ClosedByLinger
		}
		short := f.pool.Short()
		if isOver(short) {
			return streams.ClosedByBytes // the next payload waits for memory that this batch may hold
		}
		if !lingering {
			f.timer.Reset(max(f.linger-b.Oldest(), 0))
			lingering = true
		}
		select {
		case d, ok := <-f.in.ch:
			if why, closed := f.place(b, g, d, ok); closed {
				return why
			}
		case <-b.Idle(): // check again
		case <-short:
		case <-f.freed:
		case <-f.timer.C:
			if overdue {
				return streams.ClosedByLinger
			}
			overdue = true
			f.timer.Reset(WindowWait)
		}
	}
}

// place adds a delivery, or keeps it for the next batch and reports that the current one is closed. Header bytes have
// the same limit as payload bytes, because headers stay in memory until the batch is settled.
func (f *Batcher) place(b *streams.Batch, g *Batch, d Delivery, ok bool) (streams.CloseReason, bool) {
	if !ok {
		return streams.ClosedByDrain, true
	}
	f.in.took(d)
	if f.accepts(b, g, d) && g.Pack(b, d) {
		return 0, false
	}
	f.carry, f.carrying = d, true
	f.turn.MidFrame.Store(g.Open() != nil)
	return streams.ClosedByBytes, true
}

// accepts reports whether the delivery, or some of its records, may be added to a batch that isn't empty.
func (f *Batcher) accepts(b *streams.Batch, g *Batch, d Delivery) bool {
	cost := d.Cost
	if d.Frame != nil {
		if !d.Frame.TryOpen() {
			return false // the next batch may wait for memory that this one holds
		}
		cost += d.Frame.Memory.Bytes
	} else if !b.Fits(len(d.Msg.Data())) {
		return false
	}
	return g.headers+d.HeaderBytes <= f.Pipe.BatchBytes() && g.cost+cost <= f.pool.BatchShare()
}

// Batchers returns the number of goroutines that pack and submit batches for a pipeline. Only one packs at a time,
// because a core copies payloads faster than a server delivers them. Submitting a small batch to a GPU takes as long as
// computing it, so a single goroutine would delay lanes that could overlap. The number is at most half of the cores, to
// leave cores to the server and the client.
func Batchers(p *streams.Pipeline) int {
	return max(min(p.Lanes(), runtime.GOMAXPROCS(0)/2), 1)
}

// Queue holds deliveries between the pull and the batchers, so that neither has to wake the other for each delivery. It
// limits the number of deliveries and their bytes, because QueueMax payloads of the largest size would take most of a
// worker's memory. A single delivery may exceed the byte limit. Only one goroutine may call Put.
type Queue struct {
	ch    chan Delivery
	bytes atomic.Int64  // bytes of the queued deliveries
	room  chan struct{} // signalled when a delivery has left the queue
}

const (
	// QueueMax is the maximum number of queued deliveries.
	QueueMax = memory.Queued

	// queueBytes is the maximum number of queued bytes, including headers. It equals the byte limit of a pull request.
	queueBytes = memory.RequestBytes
)

// NewQueue returns a queue for up to limit deliveries. If limit is 0, Put waits for Get.
func NewQueue(limit int) *Queue {
	return &Queue{ch: make(chan Delivery, limit), room: make(chan struct{}, 1)}
}

// Put waits for space and appends d. It returns false if ctx ends first.
func (q *Queue) Put(ctx context.Context, d Delivery) bool {
	n := int64(len(d.Msg.Data()) + d.HeaderBytes)
	for held := q.bytes.Load(); held > 0 && held+n > queueBytes; held = q.bytes.Load() {
		select {
		case <-q.room:
		case <-ctx.Done():
			return false
		}
	}
	q.bytes.Add(n)
	select {
	case q.ch <- d:
		return true
	case <-ctx.Done():
		q.bytes.Add(-n)
		return false
	}
}

// Get waits for a delivery. It returns false if the queue is closed and empty.
func (q *Queue) Get() (Delivery, bool) {
	d, ok := <-q.ch
	if ok {
		q.took(d)
	}
	return d, ok
}

// took frees the space of d, which was received from q.ch.
func (q *Queue) took(d Delivery) {
	q.bytes.Add(-int64(len(d.Msg.Data()) + d.HeaderBytes))
	select {
	case q.room <- struct{}{}:
	default: // there is a token already
	}
}

// Close ends the queue. Get returns the remaining deliveries.
func (q *Queue) Close() { close(q.ch) }
