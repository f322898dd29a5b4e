package inflight

import (
	"context"
	"sync"
	"sync/atomic"
	"unsafe"

	"millrace/internal/streams"
)

// budget bounds memory in bytes. The cost of each delivery is taken before the delivery reaches a batcher, and released
// when the delivery is settled. Waiters are served in order, so small payloads don't starve a large one. A payload that
// costs more than the whole budget is served when no other bytes are in use.
type budget struct {
	mu      sync.Mutex
	limit   int64
	used    int64
	waiting []*budgetWaiter // in order of arrival
	waits   uint64          // number of calls that had to wait
	short   chan struct{}   // closed while a caller waits; nil until isShort is called
	told    bool            // whether short is closed
}

type budgetWaiter struct {
	n       int64
	granted chan struct{}
}

// take waits for n bytes and takes them. If ctx ends first, it takes nothing and returns ctx's error. A goroutine that
// holds bytes that only it can release must call Force instead, because take could deadlock.
func (b *budget) take(ctx context.Context, n int64) error {
	b.mu.Lock()
	if len(b.waiting) == 0 && b.hasRoom(n) {
		b.used += n
		b.mu.Unlock()
		return nil
	}
	w := &budgetWaiter{n: n, granted: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.waits++
	b.tell()
	b.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
		return b.leave(ctx, w)
	}
}

func (b *budget) exceeded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used > b.limit
}

// Try takes n bytes and returns true. If it would have to wait, it takes nothing and returns false.
func (b *budget) Try(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || !b.hasRoom(n) {
		return false
	}
	b.used += n
	return true
}

// await waits until the budget has free bytes or over is closed. It returns ctx's error if ctx ends first. It takes no
// bytes, so the next call of Force may exceed the budget by one batch.
func (b *budget) await(ctx context.Context, over <-chan struct{}) error {
	b.mu.Lock()
	left := len(b.waiting) == 0 && b.hasRoom(1)
	b.mu.Unlock()
	if left {
		return nil
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-over:
			stop()
		case <-waiting.Done():
		}
	}()
	if b.take(waiting, 1) == nil {
		b.Give(1)
		return nil
	}
	return ctx.Err()
}

// leave removes a waiter from the queue, unless it has already been served.
func (b *budget) leave(ctx context.Context, w *budgetWaiter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.waiting {
		if b.waiting[i] == w {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			b.serve() // a later waiter may fit
			return ctx.Err()
		}
	}
	return nil
}

// Force takes n bytes at once, even if that exceeds the budget.
func (b *budget) Force(n int64) {
	b.mu.Lock()
	b.used += n
	b.mu.Unlock()
}

// Give releases n bytes.
func (b *budget) Give(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	b.used -= n
	b.serve()
	b.mu.Unlock()
}

// serve wakes the waiters that fit into the budget. The caller holds b.mu.
func (b *budget) serve() {
	for len(b.waiting) > 0 && b.hasRoom(b.waiting[0].n) {
		b.used += b.waiting[0].n
		close(b.waiting[0].granted)
		b.waiting = b.waiting[1:]
	}
	if len(b.waiting) == 0 && b.told {
		b.waiting, b.short, b.told = nil, nil, false
	}
}

// tell closes short if a caller waits. The caller holds b.mu.
func (b *budget) tell() {
	if b.short != nil && !b.told && len(b.waiting) > 0 {
		close(b.short)
		b.told = true
	}
}

// hasRoom reports whether n bytes may be taken. The caller holds b.mu.
func (b *budget) hasRoom(n int64) bool { return b.used+n <= b.limit || b.used == 0 }

// isShort returns a channel that is closed as soon as a caller waits for memory. A batch that is being filled must then
// be submitted, because that memory may be in the batch. The channel can be used for one wait.
func (b *budget) isShort() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.short == nil {
		b.short = make(chan struct{})
		b.tell()
	}
	return b.short
}

// batchShare returns the maximum number of bytes for one batch. It leaves memory for batches that fill while others are
// computed and published.
func (b *budget) batchShare() int64 { return b.limit / 4 }

// read returns the limit and the bytes in use, and the number of calls of take that had to wait.
func (b *budget) read() (limit, used int64, waits uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit, b.used, b.waits
}

// holdings tracks the memory that deliveries hold, from the pull to the acknowledgement.
type holdings struct {
	costs     Costs  // costs per delivery
	memory    budget // memory of all deliveries in flight
	payloads  budget // payload bytes of submitted batches; bounds the number of large batches in flight
	overdraft overdraft
}

// Hold waits for the memory of a delivery and takes it. It returns false if ctx ends first.
func (h *holdings) Hold(ctx context.Context, d *Delivery) bool {
	cost := h.costs.of(d, 1)
	if h.memory.take(ctx, cost) != nil {
		return false
	}
	d.Cost = cost
	return true
}

// Force takes a delivery's memory at once, even if that exceeds the limit.
func (h *holdings) Force(d *Delivery) {
	d.Cost = h.costs.of(d, 1)
	h.memory.Force(d.Cost)
}

// HoldReceipt takes the memory for acknowledging an input after its payload is released. It doesn't wait.
func (h *holdings) HoldReceipt() { h.memory.Force(receiptCost) }

// ReleaseReceipts releases the memory of n calls of HoldReceipt.
func (h *holdings) ReleaseReceipts(n int) { h.memory.Give(receiptCost * int64(n)) }

// Release releases the memory that a delivery holds. It may be called more than once.
func (h *holdings) Release(d *Delivery) {
	h.memory.Give(d.Cost)
	d.Cost = 0
	if d.Frame != nil {
		h.drop(d.Frame)
		h.overdraft.announce()
	}
}

// releaseAll releases the memory of a batch's deliveries.
func (h *holdings) releaseAll(g *Batch) {
	sum := int64(0)
	for i := range g.Items {
		sum += g.Items[i].Cost
		g.Items[i].Cost = 0
		if f := g.Items[i].Frame; f != nil {
			h.drop(f)
		}
	}
	h.memory.Give(sum)
	h.payloads.Give(g.bytes)
	g.bytes = 0
	h.overdraft.announce()
}

// Memory returns the memory that deliveries in flight use, and its limit.
func (h *holdings) Memory() (m Memory) {
	m.Limit, m.Used, m.Waits = h.memory.read()
	return m
}

// SetLimit sets the memory limit for all deliveries, in bytes. Only tests use it, before they use the pool.
func (h *holdings) SetLimit(bytes int64) { h.memory.limit = bytes }

// SubmittedBytes returns the number of payload bytes in submitted batches.
func (h *holdings) SubmittedBytes() int64 {
	_, used, _ := h.payloads.read()
	return used
}

// PerPayload returns the memory of an empty payload without headers, in bytes.
func (h *holdings) PerPayload() int64 { return h.costs.perPayload() }

// retention bounds the total memory that unused batches and settle buffers keep. Memory beyond the bound is dropped.
// The budget counts memory that is in use.
type retention struct {
	max  int64
	kept atomic.Int64
}

// resize changes the recorded size of one item from before to now bytes. If the total would exceed the bound, it
// changes nothing and returns false.
func (k *retention) resize(before, now int64) bool {
	if k.kept.Add(now-before) <= k.max || now <= before {
		return true
	}
	k.kept.Add(before - now)
	return false
}

// batch bounds the memory that a cleared batch keeps.
func (k *retention) batch(g *Batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	size := SizeOf(g.Items) + SizeOf(g.settled) + SizeOf(g.Bodies.Data) + SizeOf(g.Bodies.ends)
	if !k.resize(g.kept, size) {
		k.resize(g.kept, 0)
		g.Items, g.settled, g.Bodies, size = nil, nil, Bodies{}, 0
	}
	g.kept = size
}

// SizeOf returns the number of bytes that a slice takes, including its spare capacity.
func SizeOf[T any](s []T) int64 {
	var one T
	return int64(cap(s)) * int64(unsafe.Sizeof(one))
}

// overdraft lets a batch begin with a frame although there is too little memory. Otherwise a frame that is larger than
// the memory could never be processed. A batcher with the turn of its pipeline may open a frame. Each pipeline has one
// turn, so at most one frame per pipeline exceeds the memory.
type overdraft struct {
	mu     sync.Mutex
	turns  map[*streams.Pipeline]*Batcher // batcher with the turn, by pipeline
	frames int                            // number of frames that were opened while the memory was exceeded and still hold memory
	next   chan struct{}                  // closed by the next announcement; nil while no goroutine waits
}

// awaitTurn waits until no other batcher of the pipeline has the turn, and deliveries use no more memory than the
// limit. It doesn't wait for memory if no batch in flight will release memory, or if f has packed a part of the frame.
// If a pipeline ends, its batches in flight are released. awaitTurn returns an error if ctx ends.
func (h *holdings) awaitTurn(ctx context.Context, f *Batcher) error {
	for {
		changed := h.takeTurn(f)
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// takeTurn gives f the turn and returns nil. If f must wait, it returns a channel that the next call of announce
// closes.
func (h *holdings) takeTurn(f *Batcher) (changed <-chan struct{}) {
	o := &h.overdraft
	o.mu.Lock()
	defer o.mu.Unlock()
	comesBack := o.frames > 0 || h.SubmittedBytes() > 0
	if o.turns[f.Pipe] == nil && (f.midFrame.Load() || !comesBack || !h.memory.exceeded()) {
		if o.turns == nil {
			o.turns = map[*streams.Pipeline]*Batcher{}
		}
		o.turns[f.Pipe] = f
		return nil
	}
	if o.next == nil {
		o.next = make(chan struct{})
	}
	return o.next
}

// endTurn ends the turn of f, if f has it. opened is the frame that f's batch begins with. It may be nil.
func (h *holdings) endTurn(f *Batcher, opened *Frame) {
	o := &h.overdraft
	defer o.announce()
	o.mu.Lock()
	defer o.mu.Unlock()
	if opened != nil && !opened.overdrawn && h.memory.exceeded() {
		opened.overdrawn = true
		o.frames++
	}
	if o.turns[f.Pipe] == f {
		delete(o.turns, f.Pipe)
	}
}

// drop releases the memory of a frame.
func (h *holdings) drop(f *Frame) {
	f.Drop()
	h.overdraft.mu.Lock()
	defer h.overdraft.mu.Unlock()
	if f.overdrawn {
		f.overdrawn = false
		h.overdraft.frames--
	}
}

// announce wakes the goroutines that wait for a turn.
func (o *overdraft) announce() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.next != nil {
		close(o.next)
		o.next = nil
	}
}
