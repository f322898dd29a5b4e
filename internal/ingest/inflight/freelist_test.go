package inflight

import (
	"testing"
)

// TestShelfGivesWhatCameLast shows that a free list reuses the item that was returned last. Taking one item at a time
// leaves the other items unused.
func TestShelfGivesWhatCameLast(t *testing.T) {
	type thing struct{ used int }
	var all []*thing
	s := NewFreeList(3, func() *thing {
		all = append(all, &thing{})
		return all[len(all)-1]
	})
	if s.size() != 3 || len(s.tokens) != 3 {
		t.Fatalf("a shelf of 3 has %d, and %d tokens", s.size(), len(s.tokens))
	}
	for range 10 {
		<-s.tokens
		one := s.pop()
		one.used++
		s.Put(one)
	}
	if used := []int{all[0].used, all[1].used, all[2].used}; used[0]+used[1]+used[2] != 10 || max(used[0], used[1], used[2]) != 10 {
		t.Errorf("ten uses are spread as %v, want all of one", used)
	}
	seen := map[*thing]bool{}
	for range 3 {
		<-s.tokens
		seen[s.pop()] = true
	}
	select {
	case <-s.tokens:
		t.Error("there is a token for a fourth")
	default:
	}
	if len(seen) != 3 {
		t.Errorf("three were taken at once, and %d are different", len(seen))
	}
}
