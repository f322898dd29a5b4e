package inflight

import (
	"context"
	"sync"

	"millrace/internal/streams"
)

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
