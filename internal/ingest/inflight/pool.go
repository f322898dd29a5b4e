package inflight

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/capacity"
	"millrace/internal/ingest/unpack"
	"millrace/internal/streams"
)

// Pool bounds the batches and the memory of deliveries in flight, from the pull to the acknowledgement. It owns all
// batches. The memory of a delivery includes payload, headers, result and bookkeeping. Methods are safe for concurrent
// use.
type Pool struct {
	holdings      // memory of all deliveries in flight
	mu            sync.Mutex
	batches       []*Batch // batches from the free list and from NewBatch; guarded by mu
	free          *FreeList[*Batch]
	inFlightCount atomic.Int32 // batches that are being filled, computed or settled
	retained      retention    // memory of unused batches and settle buffers
	unpacker      *unpack.Unpacker
}

// Options configures a Pool.
type Options struct {
	Costs      Costs
	Split      frame.Splitter       // framing of messages; NewPool sets MaxRecord
	Decompress compression.Encoding // compression of messages
	Memory     int64                // bytes for deliveries and Fixed; 0 means enough for the maximum number of batches in flight
	Fixed      int64                // bytes of Memory that are in use at every load
	Largest    int64                // bytes of the largest message that the server delivers
}

const (
	// BatchesPerSlot is the maximum number of batches in flight for each batch that can be on a device. A batch is in
	// flight from the pull to the acknowledgement.
	BatchesPerSlot = capacity.BatchesPerSlot

	// keepShare limits unused batches and settle buffers to an eighth of the memory.
	keepShare = 8

	// usualHeaders is the assumed number of bytes of a payload's subjects and headers.
	usualHeaders = 1024
)

// NewPool returns a pool with batches for the pipelines. It returns a *MemoryError if there is too little memory.
func NewPool(pipes []*streams.Pipeline, o Options) (*Pool, error) {
	p := &Pool{holdings: holdings{costs: o.Costs}}
	slots, full, largest := 0, int64(0), int64(SmallestBatchBytes(pipes))
	for _, pipe := range pipes {
		slots += pipe.Slots()
		payloads, bytes := int64(pipe.BatchPayloads()), int64(pipe.BatchBytes())
		full += capacity.FullPerSlot * int64(pipe.Slots()) * (bytes + bytes/8 + o.Costs.perByte*bytes + payloads*(o.Costs.perPayload()+usualHeaders))
	}
	p.payloads.limit = capacity.FullPerSlot * int64(slots) * largest
	p.free = NewFreeList(BatchesPerSlot*slots, p.NewBatch)
	p.memory.limit, p.retained.max = full, full/keepShare
	p.unpacker = unpack.New(o.messages(largest), &p.memory, p.Retain)
	if o.Memory == 0 {
		return p, nil
	}
	if err := o.Check(len(pipes), largest); err != nil {
		return nil, err
	}
	left := o.Memory - o.Fixed - o.frames(len(pipes), largest)
	p.retained.max = min(p.retained.max, left/keepShare)
	p.memory.limit = min(full, left-left/keepShare)
	return p, nil
}

// SmallestBatchBytes returns the capacity in bytes of the smallest batch among the pipelines.
func SmallestBatchBytes(pipes []*streams.Pipeline) int {
	bytes := pipes[0].BatchBytes()
	for _, p := range pipes {
		bytes = min(bytes, p.BatchBytes())
	}
	return bytes
}

// Splits reports whether messages may be frames or compressed. The size of such a message doesn't bound its records.
func (p *Pool) Splits() bool { return p.unpacker.Splits() }

// Unpack starts to unpack a delivery's message, without waiting. It ignores a message that is a single uncompressed
// record.
func (p *Pool) Unpack(d *Delivery) {
	if p.unpacker.IsPlain(d.Msg) {
		return
	}
	f := &Frame{operators: p.costs.results.Operators, refusals: p.costs.refusals, d: *d, done: make(chan struct{})}
	f.missing.Store(1)
	d.Frame = f
	p.unpacker.Start(&f.Message, d.Msg)
}

// NewBatch returns an additional batch that is not on the free list. The pool also keeps its deliveries alive.
func (p *Pool) NewBatch() *Batch {
	g := &Batch{}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batches = append(p.batches, g)
	return g
}

// allBatches returns all batches, in use or not.
func (p *Pool) allBatches() []*Batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.batches // the slice only grows, so a copy stays valid
}

// Reserve waits until one more batch of a pipeline may be in flight. It returns an error if ctx or the pipeline ends
// first. Call Reserve before taking a delivery. Otherwise a delivery could wait while another device is idle.
func (p *Pool) Reserve(ctx context.Context, pipe *streams.Pipeline) (*Batch, error) {
	if err := p.payloads.await(ctx, pipe.Over()); err != nil {
		return nil, err
	}
	select {
	case <-p.free.tokens:
		g := p.free.pop()
		if err := pipe.Reserve(ctx); err != nil {
			p.free.Put(g)
			return nil, err
		}
		return g, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-pipe.Over():
		return nil, pipe.Err()
	}
}

// unreserve undoes the call of Reserve that returned g.
func (p *Pool) unreserve(g *Batch, pipe *streams.Pipeline) {
	pipe.Unreserve()
	p.free.Put(g)
}

// begin takes the reserved batch from the pipeline. On an error, it returns g to the free list.
func (p *Pool) begin(g *Batch, pipe *streams.Pipeline) (*streams.Batch, error) {
	b, err := pipe.Take()
	if err != nil {
		p.free.Put(g)
		return nil, err
	}
	p.inFlightCount.Add(1)
	return b, nil
}

// Submit submits a filled batch to the device. window counts the batch until g is cleared. On an error, the caller
// still owns b.
func (p *Pool) Submit(b *streams.Batch, g *Batch, window *Window, why streams.CloseReason) error {
	b.Owner = g
	g.bytes = int64(b.Bytes() + g.headers)
	p.payloads.Force(g.bytes)
	g.enter(window)
	return b.Submit(why)
}

// Acquire waits for a batch of a pipeline, in addition to the batches from Reserve. Finish ends its use.
func (p *Pool) Acquire(ctx context.Context, pipe *streams.Pipeline) (*streams.Batch, error) {
	if err := pipe.Reserve(ctx); err != nil {
		return nil, err
	}
	b, err := pipe.Take()
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
	p.free.Put(g)
}

// Empty releases the memory of a batch's deliveries, clears the batch, and bounds the memory that it keeps.
func (p *Pool) Empty(g *Batch) {
	p.releaseAll(g)
	for i := range g.Items {
		if f := g.Items[i].Frame; f != nil && f.isUnused() {
			f.Message.Recycle()
		}
	}
	g.Clear()
	p.retained.batch(g)
}

// Abandon clears every batch after a drain that timed out. Before it clears a batch, it calls giveBack.
func (p *Pool) Abandon(giveBack func(*Batch)) {
	for _, g := range p.allBatches() {
		giveBack(g)
		p.releaseAll(g)
		g.Clear()
	}
	p.inFlightCount.Store(0)
}

// Retain changes the recorded size of a caller's reusable memory from before to now bytes. If the total would exceed
// the limit, it changes nothing and returns false. The caller must then drop the memory.
func (p *Pool) Retain(before, now int64) bool { return p.retained.resize(before, now) }

// Size returns the maximum number of batches in flight.
func (p *Pool) Size() int { return p.free.size() }

// InFlight returns the number of batches that are being filled, computed or settled.
func (p *Pool) InFlight() int { return int(p.inFlightCount.Load()) }

// AwaitIdle waits until every batch is settled or ctx ends.
func (p *Pool) AwaitIdle(ctx context.Context) {
	held := 0
	for held < p.free.size() {
		select {
		case <-p.free.tokens:
			held++
		case <-ctx.Done():
			held = p.free.size() // the settlers stop when ctx ends
		}
	}
}

// FreeList holds reusable items that keep their memory. It is last in, first out, so that few items grow to the size of
// the largest batch.
type FreeList[T any] struct {
	tokens chan struct{} // one token per item; receiving a token permits one pop

	mu    sync.Mutex
	stack []T
}

// NewFreeList returns a list of n items from make1.
func NewFreeList[T any](n int, make1 func() T) *FreeList[T] {
	s := &FreeList[T]{tokens: make(chan struct{}, n)}
	for range n {
		s.Put(make1())
	}
	return s
}

// Put returns an item to the list. It never blocks, because the list has space for all items.
func (s *FreeList[T]) Put(t T) {
	s.mu.Lock()
	s.stack = append(s.stack, t)
	s.mu.Unlock()
	s.tokens <- struct{}{}
}

// Take waits for an item and removes it from the list.
func (s *FreeList[T]) Take() T {
	<-s.tokens
	return s.pop()
}

// pop removes an item. The caller must have received a token.
func (s *FreeList[T]) pop() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.stack) - 1
	t := s.stack[last]
	s.stack = s.stack[:last]
	return t
}

// size returns the number of items, taken or not.
func (s *FreeList[T]) size() int { return cap(s.tokens) }

// StartKeepAlive starts a goroutine that sends InProgress for deliveries that are in flight for longer than a third of
// ackWait. stop ends the goroutine and waits for it.
func (p *Pool) StartKeepAlive(ackWait time.Duration) (stop func()) {
	every := ackWait / 3
	ticker := time.NewTicker(max(every/2, 10*time.Millisecond))
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case now := <-ticker.C:
				for _, g := range p.allBatches() {
					g.keepAlive(now, every)
				}
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

// minPayloads is the number of empty payloads that must fit into the memory.
const minPayloads = 1024

// ErrMemory means that Options.Memory is too small for the worker.
var ErrMemory = errors.New("ingest: too little memory")

// MemoryError is an ErrMemory with the missing amount and advice.
type MemoryError struct {
	Found  string // available and required memory
	Advice string // settings to raise or lower
}

func (e *MemoryError) Error() string { return ErrMemory.Error() + ": " + e.Found + ": " + e.Advice }

// Unwrap returns ErrMemory.
func (e *MemoryError) Unwrap() error { return ErrMemory }

// Check returns a *MemoryError if the memory is too little for the number of pipelines. batch is the capacity in bytes
// of the smallest batch among the pipelines.
func (o Options) Check(pipelines int, batch int64) error {
	frames := o.frames(pipelines, batch)
	minimum := o.Fixed + frames + o.minimum(batch)
	if o.Memory == 0 || o.Memory >= minimum {
		return nil
	}
	what, lower := "", "MILLRACE_LANES, "
	if frames > 0 {
		what, lower = fmt.Sprintf(" and %d MiB for frames", ceilMiB(frames)), "MILLRACE_FRAME_BYTES, MILLRACE_FRAME_RECORDS, MILLRACE_LANES, "
	}
	return &MemoryError{
		Found: fmt.Sprintf("%d MiB are left for payloads and results, and these settings need %d MiB, %d MiB of them for what is pulled ahead%s",
			o.Memory>>20, ceilMiB(minimum), ceilMiB(o.Fixed), what),
		Advice: fmt.Sprintf("raise the container's memory limit or MILLRACE_MEMORY_LIMIT by %d MiB, or lower %s"+
			"MILLRACE_BATCH_BYTES, MILLRACE_BATCH_PAYLOADS, MILLRACE_PARTITIONS or MILLRACE_NATS_CONNECTIONS", ceilMiB(3*(minimum-o.Memory)), lower),
	}
}

// frames returns the memory in bytes for one frame of the largest size per pipeline.
func (o Options) frames(pipelines int, batch int64) int64 {
	messages := o.messages(batch)
	return int64(pipelines) * messages.MaxBytes(o.Largest)
}

// messages returns the settings for unpacking messages into records of at most batch bytes.
func (o Options) messages(batch int64) unpack.Options {
	o.Split.MaxRecord = int(batch)
	return unpack.Options{Split: o.Split, Decompress: o.Decompress, Results: o.Costs.results}
}

// minimum returns the minimum memory for deliveries in bytes: two payloads of the largest size, and minPayloads empty
// ones. batch is the capacity of a batch in bytes.
func (o Options) minimum(batch int64) int64 {
	largest := min(o.Largest, batch)
	minimum := 2*(largest+largest/8+o.Costs.perByte*largest) + minPayloads*o.Costs.perPayload()
	return minimum * keepShare / (keepShare - 1)
}

func ceilMiB(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }
