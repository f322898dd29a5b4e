package ingest

import "sync"

// shelf has things that keep their memory from one use to the next. What was put there last is taken first: so only as
// many grow to the size of the largest batch as are in use at once. In turn all of them would, sooner or later.
type shelf[T any] struct {
	there chan struct{} // a token for each thing; who has received it may take one

	mu    sync.Mutex
	stack []T
}

// newShelf makes one with room for n things, and n of them.
func newShelf[T any](n int, make1 func() T) *shelf[T] {
	s := &shelf[T]{there: make(chan struct{}, n)}
	for range n {
		s.put(make1())
	}
	return s
}

// put gives a thing back. It never blocks: there is room for all.
func (s *shelf[T]) put(t T) {
	s.mu.Lock()
	s.stack = append(s.stack, t)
	s.mu.Unlock()
	s.there <- struct{}{}
}

// take is for who has a token.
func (s *shelf[T]) take() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.stack) - 1
	t := s.stack[last]
	s.stack = s.stack[:last]
	return t
}

// size is how many things there are, whoever has them.
func (s *shelf[T]) size() int { return cap(s.there) }
