package inflight

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/memory"
	"millrace/internal/streams"
)

// Pool bounds the batches and the memory of deliveries in flight, from the pull to the acknowledgement. It owns all
// batches. The memory of a delivery includes payload, headers, result and bookkeeping. Methods are safe for concurrent
// use.
type Pool struct {
	*memory.Budget // memory of all deliveries in flight, and of unused batches and settle buffers

	mu            sync.Mutex
	batches       []*Batch // all batches, in use or not; guarded by mu
	free          *FreeList[*Batch]
	size          int          // maximum number of batches of a queue in flight
	inFlightCount atomic.Int32 // batches that are being filled, computed or settled
	unpacker      *Unpacker
	plain         bool // whether every message is a single uncompressed record
	refusals      Refusals
}

// NewPool returns a pool with batches for the pipelines, and sets the sizes of the pipelines in w. It returns a *memory.Error if there is too little memory.
func NewPool(pipes []*streams.Pipeline, w memory.Worker) (*Pool, error) {
	w.Pipelines, w.Slots, w.BatchPayloads, w.BatchBytes = len(pipes), 0, pipes[0].BatchPayloads(), pipes[0].BatchBytes()
	for _, p := range pipes {
		w.Slots += p.Slots()
		w.BatchBytes = min(w.BatchBytes, p.BatchBytes())
	}
	budget, err := memory.New(w)
	if err != nil {
		return nil, err
	}
	p := &Pool{Budget: budget, refusals: NewRefusals(w.Operators), unpacker: NewUnpacker(budget), plain: !budget.Splits()}
	p.size = memory.BatchesPerSlot * w.Slots
	p.free = NewFreeList(func() *Batch { return p.NewBatch(nil) })
	return p, nil
}

// Hold waits for the memory of a delivery and takes it from a share, which may be nil. It returns false if ctx ends first.
func (p *Pool) Hold(ctx context.Context, s *memory.Share, d *Delivery) bool {
	cost := p.costOf(d)
	if !p.Take(ctx, s, cost) {
		return false
	}
	d.Share, d.Cost = s, cost
	return true
}

// Force takes a delivery's memory at once, even if that exceeds the limit.
func (p *Pool) Force(s *memory.Share, d *Delivery) {
	d.Share, d.Cost = s, p.costOf(d)
	p.Add(s, d.Cost, 0)
}

func (p *Pool) costOf(d *Delivery) int64 {
	return p.DeliveryCost(len(d.Msg.Data()), d.HeaderBytes+len(d.Msg.Reply())+2*len(d.Msg.Subject()), d.Msg.Headers())
}

// Release releases the memory that a delivery holds. It may be called more than once.
func (p *Pool) Release(d *Delivery) {
	if d.Frame != nil {
		d.Frame.Drop()
	}
	p.Give(d.Share, d.Cost, 0)
	d.Cost = 0
}

// releaseAll releases the memory of a batch's deliveries.
func (p *Pool) releaseAll(g *Batch) {
	var share *memory.Share // all deliveries of a batch have the same
	sum := int64(0)
	for i := range g.Items {
		if f := g.Items[i].Frame; f != nil {
			f.Drop()
		}
		share = g.Items[i].Share
		sum += g.Items[i].Cost
		g.Items[i].Cost = 0
	}
	p.Give(share, sum, g.bytes)
	g.bytes = 0
}

// Unpack starts to unpack a delivery's message, without waiting. It ignores a message that is a single uncompressed
// record.
func (p *Pool) Unpack(d *Delivery) {
	if p.plain || p.unpacker.IsPlain(d.Msg) {
		return
	}
	f := &Frame{operators: p.Operators, refusals: p.refusals, d: *d, done: make(chan struct{})}
	f.missing.Store(1)
	f.Memory.Share = d.Share
	d.Frame = f
	p.unpacker.Start(&f.Unpacked, d.Msg)
}

// NewBatch returns an additional batch for deliveries of q. The pool also keeps its deliveries alive.
func (p *Pool) NewBatch(q *Queue) *Batch {
	g := &Batch{queue: q}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batches = append(p.batches, g)
	return g
}

// NewQueue returns a queue for up to limit deliveries of owner. window counts the batches of these deliveries. No packer takes deliveries
// until Feed.Attach.
func (p *Pool) NewQueue(owner Owner, limit int, window *Window) *Queue {
	return &Queue{owner: owner, window: window, limit: limit, size: p.Size(), space: make(chan struct{}, 1)}
}

// allBatches returns all batches, in use or not.
func (p *Pool) allBatches() []*Batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.batches // the slice only grows, so a copy stays valid
}

// Acquire waits for a batch of a pipeline, in addition to the batches from Reserve. Finish ends its use.
func (p *Pool) Acquire(ctx context.Context, pipe *streams.Pipeline) (*streams.Batch, error) {
	b, err := pipe.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	p.inFlightCount.Add(1)
	return b, nil
}

// Finish ends the use of a batch from Acquire.
func (p *Pool) Finish() { p.inFlightCount.Add(-1) }

// Recycle frees a batch. Each of its deliveries must be settled, or left for the server to redeliver.
func (p *Pool) Recycle(g *Batch) {
	p.Empty(g)
	p.inFlightCount.Add(-1)
	q := g.queue
	g.queue = nil
	p.free.Put(g)
	q.hold(-1, 0)
}

// Empty releases the memory of a batch's deliveries, clears the batch, and bounds the memory that it keeps.
func (p *Pool) Empty(g *Batch) {
	p.releaseAll(g)
	for i := range g.Items {
		if f := g.Items[i].Frame; f != nil && f.isUnused() {
			f.Unpacked.Recycle()
		}
	}
	g.Clear()
	g.mu.Lock()
	defer g.mu.Unlock()
	size := memory.SizeOf(g.Items) + memory.SizeOf(g.settled) + memory.SizeOf(g.Bodies.Data) + memory.SizeOf(g.Bodies.ends)
	if !p.Keep(&g.kept, size) {
		g.Items, g.settled, g.Bodies = nil, nil, Bodies{}
	}
}

// Abandon clears every batch of a queue after a drain that timed out. Before it clears a batch, it calls giveBack.
func (p *Pool) Abandon(q *Queue, giveBack func(*Batch)) {
	for _, g := range p.allBatches() {
		if g.queue != q {
			continue
		}
		giveBack(g)
		p.releaseAll(g)
		g.Clear()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	p.inFlightCount.Add(-int32(q.groups))
	q.groups = 0
}

// Size returns the maximum number of batches of a queue in flight.
func (p *Pool) Size() int { return p.size }

// InFlight returns the number of batches that are being filled, computed or settled.
func (p *Pool) InFlight() int { return int(p.inFlightCount.Load()) }

// StartKeepAlive starts a goroutine that sends InProgress for deliveries that are in flight for longer than a third of
// ackWait, whose result may change. stop ends the goroutine and waits for it.
func (p *Pool) StartKeepAlive(ackWait func() time.Duration) (stop func()) {
	pause := func() time.Duration { return max(ackWait()/6, 10*time.Millisecond) }
	ticker := time.NewTicker(pause())
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case now := <-ticker.C:
				for _, g := range p.allBatches() {
					g.keepAlive(now, ackWait()/3)
				}
				ticker.Reset(pause())
			case <-done:
				return
			}
		}
	})
	return func() {
		ticker.Stop()
		close(done)
		wg.Wait()
	}
}

// keepAlive sends InProgress for each unsettled delivery if at least the duration every has passed since the last time.
// It returns the number of deliveries for which that succeeded.
func (g *Batch) keepAlive(now time.Time, every time.Duration) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := g.unended.Msg
	if len(g.Items) == 0 && open == nil || now.Sub(g.touched) < every {
		return 0
	}
	g.touched = now
	told := 0
	if open != nil && open.InProgress() == nil {
		told++
	}
	for i := range g.Items {
		// An error means that the connection is down. AckWait then expires and the server redelivers the message.
		if !g.settled[i] && g.Items[i].Msg.InProgress() == nil {
			told++
		}
	}
	return told
}

// FreeList holds reusable items that keep their memory. It is last in, first out, so that few items grow to the size of
// the largest batch.
type FreeList[T any] struct {
	make func() T

	mu    sync.Mutex
	stack []T
}

// NewFreeList returns an empty list. Take calls make1 if the list is empty.
func NewFreeList[T any](make1 func() T) *FreeList[T] { return &FreeList[T]{make: make1} }

// Put returns an item to the list.
func (s *FreeList[T]) Put(t T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stack = append(s.stack, t)
}

// Take removes an item from the list, or makes one.
func (s *FreeList[T]) Take() T {
	s.mu.Lock()
	last := len(s.stack) - 1
	if last < 0 {
		s.mu.Unlock()
		return s.make()
	}
	defer s.mu.Unlock()
	t := s.stack[last]
	s.stack = s.stack[:last]
	return t
}

// Progress is the time of a worker's last progress, which is that a device has computed a batch of payloads, or that the server has
// stored results. Probes, failed batches, dead letters and returned deliveries are not progress. A worker is unhealthy if it has
// batches in flight and none of them succeeds. Payloads that become dead letters on arrival (too_large) are never in flight, so they
// alone don't make the worker unhealthy. The zero value has no progress.
type Progress struct{ at atomic.Int64 }

// Mark records that the worker makes progress now.
func (p *Progress) Mark() { p.at.Store(time.Now().UnixNano()) }

// Last returns the time of the last progress.
func (p *Progress) Last() time.Time { return time.Unix(0, p.at.Load()) }
