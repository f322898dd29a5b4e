package memory

// Share is the part of a Budget that one of several holders uses, such as the shard of a stream. A holder whose results can't be stored
// keeps its memory, and must not take the memory of the others. While a Budget has several shares, each may therefore grow only to the
// size of the memory that then remains free: one holder can use half of the Budget, and n holders can leave 1/(n+1) of it.
//
// A nil Share has no limit of its own.
type Share struct {
	budget *Budget
	used   int64 // guarded by budget.mu
}

// NewShare returns a share that uses nothing.
func (b *Budget) NewShare() *Share {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shares++
	return &Share{budget: b}
}

// Close removes the share from those that limit each other. Its memory remains in use until it is released.
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

// add changes the memory that the share uses. The caller holds budget.mu.
func (s *Share) add(bytes int64) {
	if s != nil {
		s.used += bytes
	}
}
