package inflight

import "sync"

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
