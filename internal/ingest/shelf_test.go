package ingest

import (
	"testing"

	"millrace/internal/streams"
)

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

// TestNothingOfABatchStays looks at what groups and desks have kept when all is settled: memory, and nothing that it points to.
func TestNothingOfABatchStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 500
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Config{})
	r.tally.await(t, Published, n)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, d := range run.worker.desks.stack {
		for i, m := range d.results[:cap(d.results)] {
			if kept++; m.Header != nil || m.Data != nil {
				t.Errorf("a desk has kept result %d, on subject %s", i, m.Subject)
			}
		}
		for i, m := range d.msgs[:cap(d.msgs)] {
			if m != nil {
				t.Errorf("a desk has kept message %d", i)
			}
		}
		for i, in := range d.stored[:cap(d.stored)] {
			if in != nil {
				t.Errorf("a desk has kept input %d", i)
			}
		}
	}
	for _, g := range run.worker.pool.groups {
		for i, in := range g.items[:cap(g.items)] {
			if kept++; in.msg != nil {
				t.Errorf("a group has kept input %d, sequence %d", i, in.sequence)
			}
		}
	}
	if kept == 0 {
		t.Error("no memory was kept at all: there was nothing to look at")
	}
}
