package neardup

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"testing"
)

// logOf appends the log of the last batch with two calls of AppendLog. Each entry has space for a few records.
func logOf(t *testing.T, x *Index, entries [][]byte) [][]byte {
	t.Helper()
	n := int(x.applied - x.before.applied)
	cut := n / 3
	limit := x.parameters.MinEntry() + 5*x.parameters.Bands*8
	entries, err := x.AppendLog(entries, 0, cut, limit)
	if err == nil {
		entries, err = x.AppendLog(entries, cut, n, limit)
	}
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// withoutHeaders returns all rows of log entries, and all keys.
func withoutHeaders(t *testing.T, entries [][]byte) (rows, keys []byte) {
	t.Helper()
	for _, e := range entries {
		h, err := ReadHeader(e)
		if err != nil {
			t.Fatal(err)
		}
		end := len(e) - h.rowBytes
		rows, keys = append(rows, e[end:]...), append(keys, e[headerSize:end]...)
	}
	return rows, keys
}

// TestBatchesDoNotMatter uses many arrangements of batches, and random orders within each part of a step. It compares the verdicts with the
// reference's, and the log's rows between arrangements.
func TestBatchesDoNotMatter(t *testing.T) {
	eachStream(t, 400, func(t *testing.T, random *rand.Rand, s *stream) {
		want := s.expected()
		var wantRows, wantKeys []byte
		for name, next := range s.arrangements(random) {
			for _, shuffle := range []func(int, func(int)){nil, func(n int, visit func(int)) {
				for _, i := range random.Perm(n) {
					visit(i)
				}
			}} {
				x := newIndex(t, s.parameters)
				x.step.shuffle = shuffle
				for _, g := range []*generation{x.young, x.old, x.spare} {
					g.goroutines = random.IntN(6)
				}
				var entries [][]byte
				s.applyFrom(t, x, want, 0, len(want), next, func() { entries = logOf(t, x, entries) })
				rows, keys := withoutHeaders(t, entries)
				if wantRows == nil {
					wantRows, wantKeys = rows, keys
				}
				if !bytes.Equal(rows, wantRows) || !bytes.Equal(keys, wantKeys) {
					t.Fatalf("batches %s: the log differs", name)
				}
			}
		}
	})
}

// contents returns the keys and labels of a generation.
func (g *generation) contents() map[uint64]Position {
	all := map[uint64]Position{}
	for _, key := range g.keys {
		if key != 0 {
			all[key], _ = g.get(key)
		}
	}
	return all
}

// TestUndo undoes random batches, some more than once with other records in between. Undo must restore the earlier index.
func TestUndo(t *testing.T) {
	ended := 0
	eachStream(t, 400, func(t *testing.T, random *rand.Rand, s *stream) {
		want := s.expected()
		x := newIndex(t, s.parameters)
		done := 0
		for done < len(want) {
			x.commit()
			young, old, carried, state := x.young.contents(), x.old.contents(), x.young.carried, x.state
			for range random.IntN(3) {
				n := min(1+random.IntN(s.parameters.Records), len(want)-done)
				s.applyFrom(t, x, want, done, done+n, func() int { return n }, func() {})
				if x.parts[1] > 0 {
					ended++
				}
				if err := x.Undo(); err != nil {
					t.Fatal(err)
				}
				if !maps.Equal(x.young.contents(), young) || !maps.Equal(x.old.contents(), old) || x.young.carried != carried || x.state != state {
					t.Fatalf("undoing %d records after %d changed the index", n, done)
				}
			}
			n := min(1+random.IntN(s.parameters.Records), len(want)-done)
			s.applyFrom(t, x, want, done, done+n, func() int { return n }, func() {})
			done += n
		}
		if x.commit(); x.Undo() == nil {
			t.Error("a permanent batch was undone")
		}
	})
	if ended < 100 {
		t.Errorf("%d batches with the end of a generation were undone, want more", ended)
	}
}

func (g *generation) get(key uint64) (label Position, ok bool) {
	slot, ok := g.find(key)
	if ok {
		label = g.positions[g.labels[slot]]
	}
	return label, ok
}
