package inflight

import (
	"context"
	"runtime"
	"sync"
	"time"

	"millrace/internal/memory"
	"millrace/internal/streams"
)

// Packer packs the deliveries of a feed into batches of a pipeline, one batch at a time. Batches that fill at the same time would be
// smaller.
type Packer struct {
	Pipe     *streams.Pipeline
	packing  sync.Mutex // held while a goroutine fills a batch, but not during the submission
	pool     *Pool
	feed     *Feed
	linger   time.Duration
	freed    chan struct{} // signalled when a window has space, or a queue is closed
	timer    *time.Timer   // stopped, or running for the batch that is being filled
	messages int           // maximum number of messages in the batch that is being filled; 0 means no limit
	turn     *memory.Turn

	carry Delivery // the delivery that did not fit into the last batch
	from  *Queue   // queue of carry; nil if there is none
}

// NewPacker returns a packer for a pipeline. It must exist before queues are attached to the feed.
func (p *Pool) NewPacker(pipe *streams.Pipeline, feed *Feed, linger time.Duration) *Packer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	f := &Packer{pool: p, Pipe: pipe, feed: feed, linger: linger, freed: make(chan struct{}, 1), timer: t, turn: p.NewTurn(pipe)}
	feed.freed = append(feed.freed, f.freed)
	return f
}

// Packed is a batch of a pipeline with its deliveries. It is the Owner of the streams.Batch.
type Packed struct {
	Batch   *streams.Batch
	Groups  []*Batch // the deliveries of each queue
	OnLeave func()   // called when the batch has left the device; may be nil

	why      streams.CloseReason
	of       map[*Queue]*Batch // nil while there are few groups
	messages int
	headers  int   // bytes of headers
	cost     int64 // bytes of memory of the deliveries
}

// fewGroups is the number of groups up to which Packed.find needs no map.
const fewGroups = 8

// find returns the group of a queue, or nil.
func (p *Packed) find(q *Queue) *Batch {
	if p.of != nil {
		return p.of[q]
	}
	for _, g := range p.Groups {
		if g.queue == q {
			return g
		}
	}
	return nil
}

// open begins a group of a queue.
func (f *Packer) open(p *Packed, q *Queue) *Batch {
	g := f.pool.free.Take()
	g.queue, g.Pipe = q, f.Pipe
	f.pool.inFlightCount.Add(1)
	q.hold(1, 1)
	p.Groups = append(p.Groups, g)
	switch {
	case p.of != nil:
		p.of[q] = g
	case len(p.Groups) > fewGroups:
		p.of = map[*Queue]*Batch{}
		for _, g := range p.Groups {
			p.of[g.queue] = g
		}
	}
	return g
}

// withdraw removes the last group, which has no deliveries.
func (p *Packed) withdraw(pool *Pool, g *Batch) {
	p.Groups = p.Groups[:len(p.Groups)-1]
	delete(p.of, g.queue)
	g.queue.hold(0, -1)
	pool.Recycle(g)
}

// Complete completes all groups of a batch that has left the device.
func (p *Packed) Complete(record streams.Record, err error) {
	if p.OnLeave != nil {
		p.OnLeave()
	}
	for i, g := range p.Groups {
		g.Complete(Record{Record: record, Part: i, Parts: len(p.Groups)}, err)
	}
}

// any reports whether a condition holds for the window of any group.
func (p *Packed) any(holds func(*Window) bool) bool {
	for _, g := range p.Groups {
		if holds(g.queue.window) {
			return true
		}
	}
	return false
}

// hasLeaving reports whether a lease waits for the end of its groups.
func (p *Packed) hasLeaving() bool {
	for _, g := range p.Groups {
		if g.queue.leaving.Load() {
			return true
		}
	}
	return false
}

// Next packs the next batch, with up to the given number of messages, where 0 means no limit. It first waits until the pipeline has a batch,
// so that no delivery waits for this pipeline while another device is idle. Then it waits for a queue with a delivery and, if messages may
// be frames, for the pipeline's turn to open a frame. Next returns nil if ctx ends first, and the error of a pipeline that has ended. ctx must end
// when the pipeline ends.
func (f *Packer) Next(ctx context.Context, messages int) (*Packed, error) {
	if err := f.Pipe.Reserve(ctx); err != nil || ctx.Err() != nil {
		if err == nil {
			f.Pipe.Unreserve()
		}
		return nil, f.Pipe.Err()
	}
	f.packing.Lock()
	defer f.packing.Unlock()
	q, d, carried := f.awaitFirst(ctx)
	if q == nil {
		f.Pipe.Unreserve()
		return nil, f.Pipe.Err()
	}
	if !f.turn.Try() {
		f.Pipe.Unreserve() // others may need the batch to release the memory
		if !f.awaitTurn(ctx, q) || f.Pipe.Reserve(ctx) != nil {
			f.turn.End(nil)
			f.drop(q, d, carried)
			return nil, f.Pipe.Err()
		}
	}
	b, err := f.Pipe.Take()
	if err != nil {
		f.turn.End(nil)
		f.drop(q, d, carried)
		return nil, err
	}
	f.messages = messages
	p := &Packed{Batch: b}
	whole := f.packFirst(p, q, d)
	why, closed := streams.ClosedByBytes, !whole
	switch {
	case carried:
		q.hold(0, -1)
	case closed:
		q.end()
	default:
		why, closed = f.visit(p, q)
	}
	if !closed {
		why = f.fill(p)
	}
	f.close(p, why)
	return p, nil
}

// awaitFirst waits for the first delivery of the next batch. The packer then visits the delivery's queue, unless the delivery was carried.
// It returns no queue if ctx ends first.
func (f *Packer) awaitFirst(ctx context.Context) (q *Queue, d Delivery, carried bool) {
	if f.from != nil {
		q, d = f.from, f.carry
		f.from, f.carry = nil, Delivery{}
		return q, d, true
	}
	for {
		select {
		case q := <-f.feed.ready:
			if !q.begin(f.feed) {
				continue
			}
			if d, ok := q.take(true, false); ok {
				if d.Frame == nil || q.mayForce() || d.Frame.TryOpen() {
					return q, d, false
				}
				q.putBack(d)
			}
		case <-ctx.Done():
			return nil, d, false
		}
	}
}

// awaitTurn waits for the pipeline's turn to begin a batch with a delivery of q. It returns false if ctx ends first, or if q is detached and
// the delivery isn't the rest of a frame.
func (f *Packer) awaitTurn(ctx context.Context, q *Queue) bool {
	if !f.turn.MidFrame.Load() {
		attached, cancel := context.WithCancel(ctx)
		defer cancel()
		defer q.onDetach(cancel)()
		ctx = attached
	}
	return f.turn.Await(ctx, f.Pipe.Over()) == nil
}

// packFirst packs the first delivery of a batch. It returns false if the delivery is a frame that doesn't fit. Its other records are then
// packed into the next batch.
func (f *Packer) packFirst(p *Packed, q *Queue, d Delivery) (whole bool) {
	var opened *memory.Frame
	if d.Frame != nil {
		d.Frame.Open()
		opened = &d.Frame.Memory
	}
	f.turn.MidFrame.Store(false)
	f.turn.End(opened)
	return f.pack(p, f.open(p, q), d)
}

// pack appends a delivery to a group. It returns false if records of the delivery are left.
func (f *Packer) pack(p *Packed, g *Batch, d Delivery) (whole bool) {
	if g.Pack(p.Batch, d) {
		p.messages++
		p.headers += d.HeaderBytes
		p.cost += d.cost()
		return true
	}
	f.keep(g.queue, d)
	f.turn.MidFrame.Store(g.Open() != nil)
	if g.Messages() == 0 {
		p.withdraw(f.pool, g)
	}
	return false
}

// keep keeps a delivery for the next batch.
func (f *Packer) keep(q *Queue, d Delivery) {
	f.carry, f.from = d, q
	q.hold(0, 1)
}

// visit packs deliveries of a queue, as far as the queue's share allows. It ends the visit. closed reports whether the batch is full.
func (f *Packer) visit(p *Packed, q *Queue) (why streams.CloseReason, closed bool) {
	g := p.find(q)
	for {
		if why, full := p.Batch.IsFull(); full {
			q.end()
			return why, true
		}
		if f.messages > 0 && p.messages >= f.messages {
			q.end()
			return streams.ClosedByCount, true
		}
		d, ok := q.take(len(f.feed.ready) == 0, g != nil)
		if !ok {
			return 0, false
		}
		if !f.accepts(p, &d) {
			f.turn.MidFrame.Store(false)
			if q.Share != nil {
				q.unpop(d) // the next batch needn't begin with it
			} else {
				f.keep(q, d)
			}
			q.end()
			return streams.ClosedByBytes, true
		}
		if g == nil {
			g = f.open(p, q)
		}
		if !f.pack(p, g, d) {
			q.end()
			return streams.ClosedByBytes, true
		}
	}
}

// accepts reports whether the delivery, or some of its records, may be added to a batch that isn't empty. Header bytes have the same limit
// as payload bytes, because headers stay in memory until the batch is settled.
func (f *Packer) accepts(p *Packed, d *Delivery) bool {
	if d.Frame != nil {
		if !d.Frame.TryOpen() {
			return false // the next batch may wait for memory that this one holds
		}
	} else if !p.Batch.Fits(len(d.Msg.Data())) {
		return false
	}
	return p.headers+d.HeaderBytes <= f.Pipe.BatchBytes() && p.cost+d.cost() <= f.pool.BatchShare()
}

// fill adds deliveries until the batch is full or its oldest payload has waited for the linger. fill also ends when no queue has a delivery
// and the lane is idle, because waiting would only add latency. While the windows of all groups are full, an idle lane doesn't end fill. If
// the server couldn't store the batch yet, fill waits up to WindowWait beyond the linger.
func (f *Packer) fill(p *Packed) streams.CloseReason {
	lingering, overdue, b := false, false, p.Batch
	defer f.timer.Stop()
	for {
		if why, full := b.IsFull(); full {
			return why
		}
		if f.messages > 0 && p.messages >= f.messages {
			return streams.ClosedByCount
		}
		select {
		case q := <-f.feed.ready:
			if why, closed := f.enter(p, q); closed {
				return why
			}
			continue
		default:
		}
		if b.LaneIdle() && p.any(func(w *Window) bool { return !w.IsFull() }) || overdue && p.any(func(w *Window) bool { return !w.PublishFull() }) {
			return streams.ClosedByLinger
		}
		short := f.pool.Short()
		if isOver(short) {
			return streams.ClosedByBytes // the next payload waits for memory that this batch may hold
		}
		if p.hasLeaving() {
			return streams.ClosedByDrain
		}
		if !lingering {
			f.timer.Reset(max(f.linger-b.Oldest(), 0))
			lingering = true
		}
		select {
		case q := <-f.feed.ready:
			if why, closed := f.enter(p, q); closed {
				return why
			}
		case <-b.Idle(): // check again
		case <-short:
		case <-f.freed: // check again
		case <-f.timer.C:
			if overdue {
				return streams.ClosedByLinger
			}
			overdue = true
			f.timer.Reset(WindowWait)
		}
	}
}

// enter visits a queue that was in feed.ready.
func (f *Packer) enter(p *Packed, q *Queue) (why streams.CloseReason, closed bool) {
	if !q.begin(f.feed) {
		return 0, false
	}
	return f.visit(p, q)
}

// close passes the groups of a batch to their owners.
func (f *Packer) close(p *Packed, why streams.CloseReason) {
	p.why = why
	for _, g := range p.Groups {
		g.queue.owner.Packed(g)
		g.queue.hold(0, -1)
	}
}

// drop passes a delivery that was taken to its owner.
func (f *Packer) drop(q *Queue, d Delivery, carried bool) {
	if d.Frame != nil {
		d.Frame.Drop() // other packers may wait for its memory
	}
	q.owner.Unread(d)
	if carried {
		q.hold(0, -1)
	} else {
		q.end()
	}
}

// IsMidFrame reports whether the next batch begins with the rest of a frame.
func (f *Packer) IsMidFrame() bool { return f.turn.MidFrame.Load() }

// Carries reports whether a delivery did not fit into the last batch.
func (f *Packer) Carries() bool { return f.from != nil }

// Return puts the delivery that did not fit into the last batch back into its queue. The delivery must not be the rest of a frame.
func (f *Packer) Return() {
	if q := f.from; q != nil {
		q.unpop(f.carry)
		f.carry, f.from = Delivery{}, nil
		q.hold(0, -1)
	}
}

// Drop passes the delivery that did not fit into the last batch to its owner, as unread.
func (f *Packer) Drop() {
	f.turn.End(nil)
	if q := f.from; q != nil {
		f.drop(q, f.carry, true)
		f.carry, f.from = Delivery{}, nil
	}
}

// Leave passes the delivery that did not fit into the last batch to its owner, as unread. Then it does the same with all deliveries of the
// feed, until ctx ends.
func (f *Packer) Leave(ctx context.Context) {
	f.turn.End(nil)
	f.packing.Lock()
	defer f.packing.Unlock()
	for {
		q, d, carried := f.awaitFirst(ctx)
		if q == nil {
			return
		}
		f.drop(q, d, carried)
	}
}

// Packers returns the number of goroutines that pack and submit batches for a pipeline. Only one packs at a time, because a core copies
// payloads faster than a server delivers them. Submitting a small batch to a GPU takes as long as computing it, so a single goroutine would
// delay lanes that could overlap. The number is at most half of the cores, to leave cores to the server and the client.
func Packers(p *streams.Pipeline) int {
	return max(min(p.Lanes(), runtime.GOMAXPROCS(0)/2), 1)
}

// Submit submits a batch to the device. The windows count its groups until they are recycled. On an error, the caller still owns p.Batch.
func (p *Pool) Submit(packed *Packed) error {
	packed.Batch.Owner = packed
	total := int64(0)
	for _, g := range packed.Groups {
		g.bytes = int64(g.payload + g.headers)
		total += g.bytes
		g.enter()
	}
	p.Add(nil, 0, total)
	return packed.Batch.Submit(packed.why)
}
