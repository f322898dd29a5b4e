package audit

// span is which inputs are audited. The sequences that belong to a time become known while outcomes are read, because inputs that are gone tell
// their time only by their outcomes.
type span struct {
	from, to     uint64 // sequences
	since, until int64  // nanoseconds since 1970; 0: no bound

	before uint64 // the last input that is known to be stored before since; 0: none
	after  uint64 // the first input that is known to be stored at until or later; 0: none
}

// has reports whether an input is in the span, and learns from the time at which it was stored.
func (s *span) has(sequence uint64, stored int64) bool {
	switch {
	case s.since > 0 && stored < s.since:
		s.before = max(s.before, sequence)
		return false
	case s.until > 0 && stored >= s.until:
		s.after = least(s.after, sequence)
		return false
	}
	return sequence >= s.from && sequence <= s.to
}

// bounds returns the first and the last sequence, as far as they are known.
func (s *span) bounds() (first, last uint64) {
	first, last = s.from, s.to
	if s.since > 0 {
		first = max(first, s.before+1)
	}
	if s.after > 0 {
		last = min(last, s.after-1)
	}
	return first, last
}

// least returns the lesser of two sequences, of which 0 stands for none.
func least(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
