package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"millrace/internal/ingest/pace"
	"millrace/internal/streams"
)

// pool bounds what a worker has in flight, from the pull to the acknowledgement. It has all batches, and counts the memory of every
// delivery. Its methods may be called by several goroutines.
type pool struct {
	groups   []*group       // all there are: those of free, and those that newBatch made
	free     *shelf[*group] //
	inHand   atomic.Int32   // batches that are being filled, computed or settled
	budget   budget         // memory of all deliveries in flight
	payloads budget         // payload bytes of submitted batches: large batches are few
	costs    costs          // what each delivery takes of the budget
	keep     keep           // memory of batches and settle buffers that are not in use
}

// ErrMemory says that Settings.Memory is too little to work with.
var ErrMemory = errors.New("ingest: too little memory")

// poolSettings say how much a pool may hold.
type poolSettings struct {
	costs   costs
	memory  int64 // for deliveries and everything in fixed, in bytes; 0: as much as the batches that may be in flight need
	fixed   int64 // of memory, what is taken whatever the load
	largest int64 // bytes of the largest message that the server delivers
}

const (
	// batchesPerSlot is how many batches may be between pull and acknowledgement for each that can be on a device.
	// Publishing takes milliseconds where a device takes a fraction of one, so most batches in flight are being
	// published, and with too few of them the device would wait for the server.
	batchesPerSlot = 8

	// fullPerSlot is how many full batches' worth of memory is of use for each that can be on a device: one there, and one being
	// published.
	fullPerSlot = 2

	// keepShare is the part of the memory that batches and settle buffers may keep while they are not in use: an eighth.
	keepShare = 8

	// usualHeaders is what subjects and headers of a payload take where nothing is known of them.
	usualHeaders = 1024

	// leastPayloads is how many of the smallest payloads a worker must be able to hold to be worth starting.
	leastPayloads = 1024
)

// newPool makes the batches for pipelines, and divides the memory. It fails with ErrMemory where that is not enough to work with.
func newPool(pipes []*streams.Pipeline, s poolSettings) (*pool, error) {
	p := &pool{costs: s.costs}
	slots, full, largest := 0, int64(0), int64(smallestBatch(pipes))
	for _, pipe := range pipes {
		slots += pipe.Slots()
		payloads, bytes := int64(pipe.BatchPayloads()), int64(pipe.BatchBytes())
		full += fullPerSlot * int64(pipe.Slots()) * (bytes + bytes/8 + payloads*(s.costs.perPayload()+usualHeaders))
	}
	p.payloads.limit = fullPerSlot * int64(slots) * largest
	p.free = newShelf(batchesPerSlot*slots, p.newBatch)
	p.budget.limit, p.keep.most = full, full/keepShare
	if s.memory == 0 {
		return p, nil
	}
	if least := s.fixed + s.least(largest); s.memory < least {
		return nil, fmt.Errorf("%w: %d MiB are left for payloads and results, and these settings need %d MiB, %d MiB of them for what "+
			"is pulled ahead: raise the container's memory limit or MILLRACE_MEMORY_LIMIT by %d MiB, or lower MILLRACE_LANES, "+
			"MILLRACE_BATCH_BYTES, MILLRACE_BATCH_PAYLOADS, MILLRACE_PARTITIONS or MILLRACE_NATS_CONNECTIONS",
			ErrMemory, s.memory>>20, ceilMiB(least), ceilMiB(s.fixed), ceilMiB(3*(least-s.memory)))
	}
	left := s.memory - s.fixed
	p.keep.most = min(p.keep.most, left/keepShare)
	p.budget.limit = min(full, left-left/keepShare)
	return p, nil
}

// smallestBatch is how many bytes every pipeline's batch can hold.
func smallestBatch(pipes []*streams.Pipeline) int {
	bytes := pipes[0].BatchBytes()
	for _, p := range pipes {
		bytes = min(bytes, p.BatchBytes())
	}
	return bytes
}

// least is what deliveries need at the least: the largest payload twice, with its headers, so that one can follow the other, and some
// small ones. A batch takes up to batch bytes.
func (s poolSettings) least(batch int64) int64 {
	largest := min(s.largest, batch)
	least := 2*(largest+largest/8) + leastPayloads*s.costs.perPayload()
	return least * keepShare / (keepShare - 1)
}

func ceilMiB(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// newBatch makes a batch besides the free ones. Its deliveries are kept alive like theirs. It must be called before the pool is used.
func (p *pool) newBatch() *group {
	g := &group{}
	p.groups = append(p.groups, g)
	return g
}

// reserve waits until there is room for one more batch of a pipeline, or ctx or the pipeline ends. It comes before a delivery is taken:
// of several devices the one that is free gets it.
func (p *pool) reserve(ctx context.Context, pipe *streams.Pipeline) (*group, error) {
	if err := p.payloads.await(ctx, pipe.Over()); err != nil {
		return nil, err
	}
	select {
	case <-p.free.there:
		g := p.free.take()
		if err := pipe.Reserve(ctx); err != nil {
			p.free.put(g)
			return nil, err
		}
		return g, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-pipe.Over():
		return nil, pipe.Err()
	}
}

// unreserve gives back what reserve returned.
func (p *pool) unreserve(g *group, pipe *streams.Pipeline) {
	pipe.Unreserve()
	p.free.put(g)
}

// begin takes the batch that was reserved from the pipeline. Where there is none, what reserve returned is given back.
func (p *pool) begin(g *group, pipe *streams.Pipeline) (*streams.Batch, error) {
	b, err := pipe.Take()
	if err != nil {
		p.free.put(g)
		return nil, err
	}
	p.inHand.Add(1)
	return b, nil
}

// submit hands a filled batch to the device. It counts in window until it is settled. Where it fails the batch is the caller's as before.
func (p *pool) submit(b *streams.Batch, g *group, window *pace.Pace, why streams.CloseReason) error {
	b.Owner = g
	g.bytes = int64(b.Bytes() + g.headers)
	p.payloads.force(g.bytes)
	g.keep(window)
	return b.Submit(why)
}

// recycle takes a batch whose deliveries are all settled, or are left to come again.
func (p *pool) recycle(g *group) {
	p.releaseAll(g)
	p.empty(g)
	p.inHand.Add(-1)
	p.free.put(g)
}

// empty clears a batch, and bounds the memory that it keeps.
func (p *pool) empty(g *group) {
	g.clear()
	p.keep.group(g)
}

// awaitIdle waits until every batch is settled, or ctx ends.
func (p *pool) awaitIdle(ctx context.Context) {
	held := 0
	for held < p.free.size() {
		select {
		case <-p.free.there:
			held++
		case <-ctx.Done():
			held = p.free.size() // settlers give up by themselves now
		}
	}
}
