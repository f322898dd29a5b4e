package inflight

import "sync"

// FreeList has things that keep their memory from one use to the next. What was put there last is taken first: so only as
// many grow to the size of the largest batch as are in use at once. In turn all of them would, sooner or later.
type FreeList[T any] struct {
	tokens chan struct{} // a token for each thing; who has received it may take one

	mu    sync.Mutex
	stack []T
}

// NewFreeList makes one with room for n things, and n of them.
func NewFreeList[T any](n int, make1 func() T) *FreeList[T] {
	s := &FreeList[T]{tokens: make(chan struct{}, n)}
	for range n {
		s.Put(make1())
	}
	return s
}

// Put gives a thing back. It never blocks: there is room for all.
func (s *FreeList[T]) Put(t T) {
	s.mu.Lock()
	s.stack = append(s.stack, t)
	s.mu.Unlock()
	s.tokens <- struct{}{}
}

// Take waits for a thing and takes it.
func (s *FreeList[T]) Take() T {
	<-s.tokens
	return s.pop()
}

// pop is for who has a token.
func (s *FreeList[T]) pop() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.stack) - 1
	t := s.stack[last]
	s.stack = s.stack[:last]
	return t
}

// size is how many things there are, whoever has them.
func (s *FreeList[T]) size() int { return cap(s.tokens) }
