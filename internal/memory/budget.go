package memory

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Budget counts the memory of a worker's messages. It bounds three amounts, in bytes:
//
//   - The memory of all deliveries, frames and receipts, from the pull to the acknowledgement. The reader waits for the memory of each
//     delivery before a packer receives it (Take). Waiters are served in order, so small payloads don't starve a large one. A payload that
//     costs more than the whole budget is served when no other memory is in use. A Share limits the memory of one of several holders.
//   - The payloads of submitted batches. A packer waits until there is room (Turn.Await), which bounds the number of large batches in
//     flight. A batch may exceed the limit.
//   - The buffers that are kept for reuse (Keep). A buffer that would exceed the limit is dropped.
//
// A frame's memory is known only when the frame is unpacked. The worker unpacks frames in advance while memory is free. The first frame of
// a batch takes its memory even beyond the limit. Otherwise a frame that is larger than the budget could never be processed. Turns limit
// such frames to one per pipeline.
//
// Methods are safe for concurrent use.
type Budget struct {
	Messages
	splits bool // result of Messages.Splits

	Limit          int64 // memory for deliveries, frames and receipts. It doesn't change after the first use of the budget.
	submittedLimit int64
	idleLimit      int64
	empty, perByte int64 // see Messages.delivery

	mu        sync.Mutex
	used      int64
	waiting   []waiter // wait for free memory, in order of arrival
	limited   []waiter // wait because their shares are too large, in order of arrival
	shares    int      // number of open shares
	waits     uint64
	short     chan struct{} // closed while waiting isn't empty
	submitted int64
	idle      int64

	turns     map[any]*Turn // current turn of each pipeline
	overdrawn int           // number of frames that were opened while the memory was exceeded and that still hold memory
	released  chan struct{} // closed when memory is released or a turn ends; nil while no goroutine waits for it
}

// waiter is a goroutine that waits for memory.
type waiter struct {
	share *Share
	bytes int64
	taken chan struct{}
}

// Usage is the state of a Budget, in bytes.
type Usage struct {
	Limit, Used int64  // memory for messages in flight
	Waits       uint64 // number of times that a payload had to wait for memory
	Submitted   int64  // payloads of submitted batches
	Idle        int64  // buffers that are kept for reuse
}

// Memory returns the state of the budget.
func (b *Budget) Memory() Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Usage{Limit: b.Limit, Used: b.used, Waits: b.waits, Submitted: b.submitted, Idle: b.idle}
}

// DeliveryCost returns the maximum memory of a delivery. rest is the size of its headers and subjects as received. The client also copies
// each key and value of the headers out of the received bytes.
func (b *Budget) DeliveryCost(payload, rest int, headers map[string][]string) int64 {
	bytes := int64(payload + rest)
	cost := b.empty + bytes + bytes/8 + b.perByte*int64(payload) // the allocator rounds sizes up by at most an eighth
	for key, values := range headers {
		cost += headerBytes + int64(len(key))
		for _, v := range values {
			cost += valueBytes + int64(len(v))
		}
	}
	return cost
}

// Take waits for memory of a share, which may be nil, and takes it. It returns false, and takes nothing, if ctx ends first. A goroutine with memory that only it can
// release must call Add instead, because Take could deadlock.
func (b *Budget) Take(ctx context.Context, s *Share, bytes int64) bool {
	b.mu.Lock()
	if b.fits(s, bytes) {
		b.add(s, bytes)
		b.mu.Unlock()
		return true
	}
	w := waiter{s, bytes, make(chan struct{})}
	if s.allows(bytes) && !s.isWaiting() {
		b.await(w)
	} else {
		b.limited = append(b.limited, w)
		s.waiting++
	}
	b.waits++
	b.mu.Unlock()
	select {
	case <-w.taken:
		return true
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.limited, w); i >= 0 {
		b.limited = slices.Delete(b.limited, i, i+1)
		s.waiting--
		b.serve() // a later waiter of the share may fit
		return false
	}
	i := slices.Index(b.waiting, w)
	if i < 0 {
		return true // the waiter was served
	}
	b.waiting = slices.Delete(b.waiting, i, i+1)
	b.serve() // a later waiter may fit
	return false
}

// await appends a waiter for free memory. The caller holds b.mu.
func (b *Budget) await(w waiter) {
	if len(b.waiting) == 0 {
		close(b.short)
	}
	b.waiting = append(b.waiting, w)
}

// Add takes memory of a share, which may be nil, without waiting, even beyond the limit. It also counts submitted, the payload bytes of a
// submitted batch.
func (b *Budget) Add(s *Share, bytes, submitted int64) {
	b.mu.Lock()
	b.add(s, bytes)
	b.submitted += submitted
	b.mu.Unlock()
}

// add takes memory. The caller holds b.mu.
func (b *Budget) add(s *Share, bytes int64) {
	b.used += bytes
	s.add(bytes)
}

// Give releases memory that Take or Add has taken.
func (b *Budget) Give(s *Share, bytes, submitted int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.submitted -= submitted
	b.release(s, bytes)
}

// KeepReceipts counts n more receipts, which don't wait for memory. A negative n releases their memory.
func (b *Budget) KeepReceipts(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(nil, -receiptBytes*int64(n))
}

// Short returns a channel that is closed as soon as a goroutine waits for free memory in Take. A batch that is being filled must then be submitted, because
// it may hold the memory. The channel can be used for one wait.
func (b *Budget) Short() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.short
}

// BatchShare returns the maximum memory for one batch. It leaves memory for batches that fill while others are computed and published.
func (b *Budget) BatchShare() int64 { return b.Limit / 4 }

// Keep sets the recorded size of a buffer that is kept for reuse to size. If all such buffers together would exceed their limit, Keep
// records 0 and returns false. The caller must then drop the buffer.
func (b *Budget) Keep(recorded *int64, size int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle -= *recorded
	ok := size <= *recorded || b.idle+size <= b.idleLimit
	if !ok {
		size = 0
	}
	b.idle += size
	*recorded = size
	return ok
}

// fits reports whether a goroutine may take bytes without waiting. The caller holds b.mu.
func (b *Budget) fits(s *Share, bytes int64) bool {
	return len(b.waiting) == 0 && b.hasRoom(bytes) && s.allows(bytes) && !s.isWaiting()
}

// hasRoom reports whether bytes fit into the free memory. The caller holds b.mu.
func (b *Budget) hasRoom(bytes int64) bool { return b.used+bytes <= b.Limit || b.used == 0 }

// release releases memory and wakes the goroutines that wait for it. The caller holds b.mu.
func (b *Budget) release(s *Share, bytes int64) {
	b.add(s, -bytes)
	b.serve()
	b.wake()
}

// serve takes memory for the waiters that fit into the budget. The caller holds b.mu.
func (b *Budget) serve() {
	var blocked map[*Share]bool // shares whose first waiter must wait
	b.limited = slices.DeleteFunc(b.limited, func(w waiter) bool {
		if blocked[w.share] || !w.share.allows(w.bytes) {
			if blocked == nil {
				blocked = map[*Share]bool{}
			}
			blocked[w.share] = true
			return false
		}
		w.share.waiting--
		b.await(w)
		b.serveWaiting()
		return true
	})
	b.serveWaiting()
}

// serveWaiting takes memory for the waiters in waiting that fit into the budget. The caller holds b.mu.
func (b *Budget) serveWaiting() {
	for len(b.waiting) > 0 && b.hasRoom(b.waiting[0].bytes) {
		b.add(b.waiting[0].share, b.waiting[0].bytes)
		close(b.waiting[0].taken)
		b.waiting = b.waiting[1:]
	}
	if len(b.waiting) > 0 {
		return
	}
	select {
	case <-b.short: // the last waiter has left
		b.waiting, b.short = nil, make(chan struct{})
	default:
	}
}

// wake wakes the goroutines that wait in Turn.Await. The caller holds b.mu.
func (b *Budget) wake() {
	if b.released != nil {
		close(b.released)
		b.released = nil
	}
}

// Share is the part of a Budget that one of several holders uses, such as the shard of a stream. A holder whose results can't be stored
// keeps its memory, and must not take the memory of the others. While a Budget has several shares, each may therefore grow only to the
// size of the memory that then remains free: one holder can use half of the Budget, and n holders can leave 1/(n+1) of it.
//
// A nil Share is unlimited.
type Share struct {
	budget  *Budget
	used    int64 // guarded by budget.mu, like waiting
	waiting int   // waiters in budget.limited. Later ones don't overtake them.
}

// NewShare returns a share that uses nothing.
func (b *Budget) NewShare() *Share {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shares++
	return &Share{budget: b}
}

// Close ends the share. It no longer counts as a holder, but its memory remains in use until it is released.
func (s *Share) Close() {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shares--
	b.serve()
}

// allows reports whether the share may grow by bytes. The caller holds budget.mu.
func (s *Share) allows(bytes int64) bool {
	return s == nil || s.used == 0 || s.budget.shares < 2 || s.used+bytes <= s.budget.Limit-s.budget.used
}

// isWaiting reports whether a goroutine waits for the share. The caller holds budget.mu.
func (s *Share) isWaiting() bool { return s != nil && s.waiting > 0 }

// add changes the memory that the share uses. The caller holds budget.mu.
func (s *Share) add(bytes int64) {
	if s != nil {
		s.used += bytes
	}
}

// Frame is the memory of one frame.
type Frame struct {
	Share     *Share // may be nil
	Bytes     int64
	overdrawn bool // whether Budget.overdrawn counts the frame
}

// TakeFrame takes more memory for a frame without waiting. If too little memory is free, the result depends on must. If must is true,
// TakeFrame exceeds the limit. Otherwise, it takes nothing and returns false.
func (b *Budget) TakeFrame(f *Frame, bytes int64, must bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !must && !b.fits(f.Share, bytes) {
		return false
	}
	b.add(f.Share, bytes)
	f.Bytes += bytes
	return true
}

// DropFrame releases the memory of a frame. It may be called more than once.
func (b *Budget) DropFrame(f *Frame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.overdrawn {
		f.overdrawn = false
		b.overdrawn--
	}
	b.release(f.Share, f.Bytes)
	f.Bytes = 0
}

// Turn lets a packer begin a batch, with a frame that may exceed the limit. Each pipeline gives its turn to one packer at a time.
type Turn struct {
	MidFrame atomic.Bool // whether the packer's next batch begins with the rest of a frame

	budget   *Budget
	pipeline any
}

// NewTurn returns the Turn of one of the packers of a pipeline. The budget uses pipeline only as a key.
func (b *Budget) NewTurn(pipeline any) *Turn { return &Turn{budget: b, pipeline: pipeline} }

// Await waits until one more batch may be submitted. If messages may be frames, Await also waits until no other packer of the
// pipeline has the turn and messages use at most the memory limit. It doesn't wait for memory if no batch in flight will release
// memory, or if the packer has packed a part of the frame. Await returns ctx's error if ctx ends. When over is closed, it stops
// waiting for submitted batches. It needn't stop waiting for the turn, because the batches of an ended pipeline release their memory.
func (t *Turn) Await(ctx context.Context, over <-chan struct{}) error {
	for {
		released, full := t.take()
		if released == nil {
			return nil
		}
		ended := over
		if !full {
			ended = nil
		}
		select {
		case <-released:
		case <-ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Try is like Await, but doesn't wait. It reports whether the packer has the turn.
func (t *Turn) Try() bool {
	released, _ := t.take()
	return released == nil
}

// take gives the turn to the packer and returns nil. If the packer must wait, take returns a channel that is closed when memory is
// released or a turn ends. full reports whether it waits for submitted batches.
func (t *Turn) take() (released <-chan struct{}, full bool) {
	b := t.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	full = b.submitted >= b.submittedLimit && b.submitted > 0
	returns := b.overdrawn > 0 || b.submitted > 0
	switch {
	case full:
	case !b.splits:
		return nil, false
	case b.turns[t.pipeline] == nil && (t.MidFrame.Load() || !returns || b.used <= b.Limit):
		b.turns[t.pipeline] = t
		return nil, false
	}
	if b.released == nil {
		b.released = make(chan struct{})
	}
	return b.released, full
}

// End ends the turn, if the packer has it. opened is the frame that the batch begins with. It may be nil.
func (t *Turn) End(opened *Frame) {
	b := t.budget
	if !b.splits {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if opened != nil && !opened.overdrawn && b.used > b.Limit {
		opened.overdrawn = true
		b.overdrawn++
	}
	if b.turns[t.pipeline] == t {
		delete(b.turns, t.pipeline)
	}
	b.wake()
}

// SizeOf returns the memory of a slice, including its spare capacity.
func SizeOf[T any](s []T) int64 {
	var one T
	return int64(cap(s)) * int64(unsafe.Sizeof(one))
}
