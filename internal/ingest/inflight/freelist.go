package inflight

import "sync"

// FreeList holds items that keep their memory from one use to the next. It is last in, first out, so only as many items grow to the size
// of the largest batch as are in use at once.
type FreeList[T any] struct {
	tokens chan struct{} // a token per item. Receiving a token permits one pop

	mu    sync.Mutex
	stack []T
}

// NewFreeList makes a list of n items.
func NewFreeList[T any](n int, make1 func() T) *FreeList[T] {
	s := &FreeList[T]{tokens: make(chan struct{}, n)}
	for range n {
		s.Put(make1())
	}
	return s
}

// Put gives an item back. It never blocks, since there is room for all.
func (s *FreeList[T]) Put(t T) {
	s.mu.Lock()
	s.stack = append(s.stack, t)
	s.mu.Unlock()
	s.tokens <- struct{}{}
}

// Take waits for an item and takes it.
func (s *FreeList[T]) Take() T {
	<-s.tokens
	return s.pop()
}

// pop takes an item. The caller must have received a token.
func (s *FreeList[T]) pop() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.stack) - 1
	t := s.stack[last]
	s.stack = s.stack[:last]
	return t
}

// size is how many items there are, taken or not.
func (s *FreeList[T]) size() int { return cap(s.tokens) }
