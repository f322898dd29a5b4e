package audit

import "testing"

// TestTheBoundsOfASpan shows that an input at the start time is in the span, and an input at the end time isn't.
func TestTheBoundsOfASpan(t *testing.T) {
	t.Parallel()
	s := &span{from: 2, to: 20, since: 100, until: 200}
	for _, c := range []struct {
		sequence uint64
		stored   int64
		want     bool
	}{{3, 99, false}, {4, 100, true}, {9, 199, true}, {10, 200, false}, {11, 201, false}, {1, 150, false}, {21, 150, false}} {
		if got := s.has(c.sequence, c.stored); got != c.want {
			t.Errorf("input %d, stored at %d, is in the span: %v", c.sequence, c.stored, got)
		}
	}
	if first, last := s.bounds(); first != 4 || last != 9 {
		t.Errorf("the span is from %d to %d, want 4 to 9", first, last)
	}
}
