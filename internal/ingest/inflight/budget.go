package inflight

import (
	"context"
	"sync"
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
