package ingest

import "testing"

// TestShelfGivesWhatCameLast takes one thing at a time: it is always the same, and the others are never touched.
func TestShelfGivesWhatCameLast(t *testing.T) {
	type thing struct{ used int }
	var all []*thing
	s := newShelf(3, func() *thing {
		all = append(all, &thing{})
		return all[len(all)-1]
	})
	if s.size() != 3 || len(s.there) != 3 {
		t.Fatalf("a shelf of 3 has %d, and %d tokens", s.size(), len(s.there))
	}
	for range 10 {
		<-s.there
		one := s.take()
		one.used++
		s.put(one)
	}
	if used := []int{all[0].used, all[1].used, all[2].used}; used[0]+used[1]+used[2] != 10 || max(used[0], used[1], used[2]) != 10 {
		t.Errorf("ten uses are spread as %v, want all of one", used)
	}
	seen := map[*thing]bool{}
	for range 3 {
		<-s.there
		seen[s.take()] = true
	}
	select {
	case <-s.there:
		t.Error("there is a token for a fourth")
	default:
	}
	if len(seen) != 3 {
		t.Errorf("three were taken at once, and %d are different", len(seen))
	}
}
