package inflight

import (
	"context"
	"sync"
)

// budget bounds the memory, in bytes, of everything that a worker holds from the pull to the acknowledgement: payloads, headers,
// results and bookkeeping (see costs). Each delivery takes its cost before it is handed to a batcher, and what it took is given back
// when it is settled or given back. Waiters are served in order, so a large payload isn't starved by small ones. A payload that costs
// more than the whole budget goes alone: when nothing else is held.
type budget struct {
	mu      sync.Mutex
	limit   int64
	used    int64
	waiting []*budgetWaiter // in order
	waits   uint64          // times that somebody had to wait
	short   chan struct{}   // closed while somebody waits; nil until somebody asks for it
	told    bool            // it is closed
}

// budgetWaiter waits for n bytes.
type budgetWaiter struct {
	n       int64
	granted chan struct{}
}

// take takes n bytes when they are there, or returns ctx's error and takes nothing. Who holds bytes that only it can give back must
// not call it: see force.
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

// await returns nil once something is left or over is closed, or ctx's error. It takes nothing: who comes next overdraws the budget by what
// a batch has.
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
		b.give(1)
		return nil
	}
	return ctx.Err()
}

// leave takes a waiter out of the queue, unless it has been served meanwhile.
func (b *budget) leave(ctx context.Context, w *budgetWaiter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.waiting {
		if b.waiting[i] == w {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			b.serve() // it may have stood before one that there is room for
			return ctx.Err()
		}
	}
	return nil
}

// force takes n bytes at once and overdraws the budget where they are not there.
func (b *budget) force(n int64) {
	b.mu.Lock()
	b.used += n
	b.mu.Unlock()
}

// give gives n bytes back.
func (b *budget) give(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	b.used -= n
	b.serve()
	b.mu.Unlock()
}

// serve lets those go on for whom there is room. b.mu is held.
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

// tell closes short if somebody waits. b.mu is held.
func (b *budget) tell() {
	if b.short != nil && !b.told && len(b.waiting) > 0 {
		close(b.short)
		b.told = true
	}
}

// hasRoom reports whether n bytes may be taken. b.mu is held.
func (b *budget) hasRoom(n int64) bool { return b.used+n <= b.limit || b.used == 0 }

// isShort returns a channel that is closed as soon as somebody waits. A batch that fills must go then: what it holds may be what the
// others wait for. The channel is good for one wait; ask again for the next.
func (b *budget) isShort() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.short == nil {
		b.short = make(chan struct{})
		b.tell()
	}
	return b.short
}

// batchShare is how much one batch may hold, so that one fills, some are computed and some are published at once.
func (b *budget) batchShare() int64 { return b.limit / 4 }

// read returns the limit, what is taken of it, and how often somebody had to wait.
func (b *budget) read() (limit, used int64, waits uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit, b.used, b.waits
}
