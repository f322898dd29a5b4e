package inflight

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"millrace/internal/ingest/capacity"
	"millrace/internal/streams"
)

// Pool bounds what a worker has in flight, from the pull to the acknowledgement. It owns all batches and counts the memory of every
// delivery: payload, headers, result and bookkeeping. Its methods may be called by several goroutines.
type Pool struct {
	holdings               // memory of all deliveries in flight
	batches       []*Batch // all: those of free, and those that NewBatch made
	free          *FreeList[*Batch]
	inFlightCount atomic.Int32 // batches that are being filled, computed or settled
	retained      retention    // memory of batches and settle buffers that are not in use
}

// ErrMemory says that Settings.Memory is too little to work with.
var ErrMemory = errors.New("ingest: too little memory")

// Settings say how much a pool may hold.
type Settings struct {
	Costs   Costs
	Memory  int64 // bytes for deliveries and everything in Fixed; 0: as much as the batches need that may be in flight
	Fixed   int64 // bytes of Memory that are taken whatever the load is
	Largest int64 // bytes of the largest message that the server delivers
}

const (
	// BatchesPerSlot is how many batches may be between pull and acknowledgement for each that can be on a device.
	BatchesPerSlot = capacity.BatchesPerSlot

	// keepShare: unused batches and settle buffers may keep an eighth of the memory.
	keepShare = 8

	// usualHeaders is how many bytes the subjects and headers of a payload are assumed to take.
	usualHeaders = 1024

	// leastPayloads is how many of the smallest payloads must fit into the memory, or NewPool fails.
	leastPayloads = 1024
)

// NewPool makes the batches for pipelines and divides the memory. It returns ErrMemory if there is too little.
func NewPool(pipes []*streams.Pipeline, s Settings) (*Pool, error) {
	p := &Pool{holdings: holdings{costs: s.Costs}}
	slots, full, largest := 0, int64(0), int64(SmallestBatch(pipes))
	for _, pipe := range pipes {
		slots += pipe.Slots()
		payloads, bytes := int64(pipe.BatchPayloads()), int64(pipe.BatchBytes())
		full += capacity.FullPerSlot * int64(pipe.Slots()) * (bytes + bytes/8 + payloads*(s.Costs.perPayload()+usualHeaders))
	}
	p.payloads.limit = capacity.FullPerSlot * int64(slots) * largest
	p.free = NewFreeList(BatchesPerSlot*slots, p.NewBatch)
	p.memory.limit, p.retained.most = full, full/keepShare
	if s.Memory == 0 {
		return p, nil
	}
	if least := s.Fixed + s.least(largest); s.Memory < least {
		return nil, fmt.Errorf("%w: %d MiB are left for payloads and results, and these settings need %d MiB, %d MiB of them for what "+
			"is pulled ahead: raise the container's memory limit or MILLRACE_MEMORY_LIMIT by %d MiB, or lower MILLRACE_LANES, "+
			"MILLRACE_BATCH_BYTES, MILLRACE_BATCH_PAYLOADS, MILLRACE_PARTITIONS or MILLRACE_NATS_CONNECTIONS",
			ErrMemory, s.Memory>>20, ceilMiB(least), ceilMiB(s.Fixed), ceilMiB(3*(least-s.Memory)))
	}
	left := s.Memory - s.Fixed
	p.retained.most = min(p.retained.most, left/keepShare)
	p.memory.limit = min(full, left-left/keepShare)
	return p, nil
}

// SmallestBatch is how many bytes every pipeline's batch can hold.
func SmallestBatch(pipes []*streams.Pipeline) int {
	bytes := pipes[0].BatchBytes()
	for _, p := range pipes {
		bytes = min(bytes, p.BatchBytes())
	}
	return bytes
}

// least is how much memory deliveries need at least: the largest payload twice, with its headers, so that one can follow the other, and
// some small ones. A batch holds up to batch bytes.
func (s Settings) least(batch int64) int64 {
	largest := min(s.Largest, batch)
	least := 2*(largest+largest/8) + leastPayloads*s.Costs.perPayload()
	return least * keepShare / (keepShare - 1)
}

func ceilMiB(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// NewBatch makes a batch that is not one of the free ones. The pool keeps its deliveries alive too. Call it before the pool is used.
func (p *Pool) NewBatch() *Batch {
	g := &Batch{}
	p.batches = append(p.batches, g)
	return g
}

// Reserve waits until there is room for one more batch of a pipeline, or ctx or the pipeline ends. Call it before you take a delivery, so
// that a device which is free gets it.
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

// unreserve gives back what Reserve returned.
func (p *Pool) unreserve(g *Batch, pipe *streams.Pipeline) {
	pipe.Unreserve()
	p.free.Put(g)
}

// Begin takes the reserved batch from the pipeline. On an error it gives back what Reserve returned.
func (p *Pool) Begin(g *Batch, pipe *streams.Pipeline) (*streams.Batch, error) {
	b, err := pipe.Take()
	if err != nil {
		p.free.Put(g)
		return nil, err
	}
	p.inFlightCount.Add(1)
	return b, nil
}

// Submit submits a filled batch to the device. The batch counts in window until it is cleared. On an error b is still the caller's.
func (p *Pool) Submit(b *streams.Batch, g *Batch, window *Window, why streams.CloseReason) error {
	b.Owner = g
	g.bytes = int64(b.Bytes() + g.headers)
	p.payloads.force(g.bytes)
	g.enter(window)
	return b.Submit(why)
}

// Acquire waits for a batch of a pipeline, for deliveries in a batch that NewBatch made.
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

// Finish clears a batch that NewBatch made, once its deliveries have left the batch that Acquire returned.
func (p *Pool) Finish(g *Batch) {
	p.empty(g)
	p.inFlightCount.Add(-1)
}

// Recycle frees a batch. Each of its deliveries is settled, or left for the server to deliver again.
func (p *Pool) Recycle(g *Batch) {
	p.releaseAll(g)
	p.empty(g)
	p.inFlightCount.Add(-1)
	p.free.Put(g)
}

// empty clears a batch and bounds the memory that it keeps.
func (p *Pool) empty(g *Batch) {
	g.Clear()
	p.retained.batch(g)
}

// Abandon clears every batch after a drain that ran out of time. It calls giveBack for each batch first.
func (p *Pool) Abandon(giveBack func(*Batch)) {
	for _, g := range p.batches {
		giveBack(g)
		p.releaseAll(g)
		g.Clear()
	}
	p.inFlightCount.Store(0)
}

// Retain counts memory that the caller keeps from one batch to the next: now bytes instead of before. It reports false, and counts
// nothing, if that is too much. Then the caller must drop the memory.
func (p *Pool) Retain(before, now int64) bool { return p.retained.resize(before, now) }

// Size is how many batches may be in flight.
func (p *Pool) Size() int { return p.free.size() }

// InFlight is how many batches are being filled, computed or settled.
func (p *Pool) InFlight() int { return int(p.inFlightCount.Load()) }

// AwaitIdle waits until every batch is settled, or ctx ends.
func (p *Pool) AwaitIdle(ctx context.Context) {
	held := 0
	for held < p.free.size() {
		select {
		case <-p.free.tokens:
			held++
		case <-ctx.Done():
			held = p.free.size() // the settlers give up when ctx ends
		}
	}
}
