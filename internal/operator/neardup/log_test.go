package neardup

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
)

// newLog applies a stream in random batches. It returns the log and, for each entry, the number of records up to its end.
func newLog(t *testing.T, random *rand.Rand, s *stream, want []Verdict) (entries [][]byte, ends []int) {
	x := newIndex(t, s.parameters)
	most := min(s.parameters.Records, 40)
	s.applyFrom(t, x, want, 0, len(want), func() int { return 1 + random.IntN(most) }, func() {
		first := len(entries)
		entries = logOf(t, x, entries)
		applied := x.before.applied
		for _, e := range entries[first:] {
			h, err := ReadHeader(e)
			if err != nil {
				t.Fatal(err)
			}
			if h.Generation*uint64(s.parameters.Records)+uint64(h.First) != applied {
				t.Fatalf("an entry begins with record %d of generation %d, want record %d", h.First, h.Generation, applied)
			}
			applied += uint64(h.Records)
			ends = append(ends, int(applied))
			if h.Last != s.positions[applied-1] || h.Parameters != s.parameters {
				t.Fatalf("an entry has last position %v and parameters %v", h.Last, h.Parameters)
			}
		}
	})
	return entries, ends
}

// TestReplay replays prefixes of the log, and expects the verdicts of the uninterrupted stream for the remaining records.
func TestReplay(t *testing.T) {
	eachStream(t, 400, func(t *testing.T, random *rand.Rand, s *stream) {
		want := s.expected()
		entries, ends := newLog(t, random, s, want)
		for prefix := 0; prefix <= len(entries); prefix += 1 + random.IntN(max(1, len(entries)/8)) {
			x := newIndex(t, s.parameters)
			first := 0
			for i, e := range entries[:prefix] {
				if err := x.Replay(e); err != nil {
					t.Fatal(err)
				}
				first = ends[i]
			}
			sizes := rand.New(rand.NewPCG(uint64(prefix), 1))
			s.applyFrom(t, x, want, first, len(want), func() int { return 1 + sizes.IntN(s.parameters.Records) }, func() {})
		}
	})
}

// TestReplayEqualsApply compares the tables of an index that replayed the whole log with those of the index that wrote it.
func TestReplayEqualsApply(t *testing.T) {
	eachStream(t, 300, func(t *testing.T, random *rand.Rand, s *stream) {
		applied, replayed := newIndex(t, s.parameters), newIndex(t, s.parameters)
		s.applyFrom(t, applied, s.expected(), 0, len(s.positions), func() int { return 1 + random.IntN(s.parameters.Records) }, func() {
			for _, e := range logOf(t, applied, nil) {
				if err := replayed.Replay(e); err != nil {
					t.Fatal(err)
				}
			}
		})
		applied.commit()
		if !maps.Equal(applied.young.contents(), replayed.young.contents()) || !maps.Equal(applied.old.contents(), replayed.old.contents()) {
			t.Error("the tables differ")
		}
		if applied.state != replayed.state || applied.young.carried != replayed.young.carried {
			t.Errorf("state %+v and %d carried labels, want %+v and %d", replayed.state, replayed.young.carried, applied.state, applied.young.carried)
		}
	})
}

// TestReplayAfterApply lets two indexes alternate. The index that doesn't apply a batch replays the batch's log.
func TestReplayAfterApply(t *testing.T) {
	eachStream(t, 300, func(t *testing.T, random *rand.Rand, s *stream) {
		want := s.expected()
		applies, replays := newIndex(t, s.parameters), newIndex(t, s.parameters)
		for done := 0; done < len(want); {
			n := min(1+random.IntN(s.parameters.Records), len(want)-done)
			s.applyFrom(t, applies, want, done, done+n, func() int { return n }, func() {})
			for _, e := range logOf(t, applies, nil) {
				if err := replays.Replay(e); err != nil {
					t.Fatal(err)
				}
			}
			done += n
			applies, replays = replays, applies
		}
	})
}

// TestReplayOfATrimmedLog begins the replay with each generation of the log. The index refuses to give verdicts while they need an
// earlier generation.
func TestReplayOfATrimmedLog(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	p := Parameters{Bands: 4, Rows: 2, K: 24, Seed: 42, Records: 50}
	s := newStream(random, p, mix{near: 0.4, mosaic: 0.3}, 230)
	want := s.expected()
	entries, ends := newLog(t, random, s, want)
	for start := range uint64(5) {
		x := newIndex(t, p)
		for i, e := range entries {
			if h, _ := ReadHeader(e); h.Generation < start {
				continue
			}
			if err := x.Replay(e); err != nil {
				t.Fatal(err)
			}
			refused := start > 0 && uint64(ends[i]) < (start+1)*50
			if err := x.ready(); (err != nil) != refused {
				t.Fatalf("a log from generation %d with %d records: %v", start, ends[i], err)
			}
			if !refused && ends[i] < len(want) {
				y := *x // a copy that shares the tables; the batch is undone
				n := min(50, len(want)-ends[i])
				s.applyFrom(t, &y, want, ends[i], ends[i]+n, func() int { return n }, func() {})
				if err := y.Undo(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if start == 4 {
			if _, err := x.Apply(nil, nil); err == nil || !strings.Contains(err.Error(), "keep two whole generations") {
				t.Errorf("a log of one generation: %v", err)
			}
		}
	}
}

// TestReplayRefuses changes, repeats, truncates or omits entries.
func TestReplayRefuses(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	p := Parameters{Bands: 5, Rows: 2, K: 24, Seed: 42, Records: 40}
	s := newStream(random, p, mix{near: 0.5, mosaic: 0.3}, 130)
	entries, _ := newLog(t, random, s, s.expected())
	replay := func(p Parameters, entries ...[]byte) error {
		x := newIndex(t, p)
		for _, e := range entries {
			if err := x.Replay(e); err != nil {
				if _, other := x.Apply(nil, nil); other == nil {
					t.Error("the index is usable after an error")
				}
				return err
			}
		}
		return nil
	}
	if err := replay(p, entries...); err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		if i > 0 && i+1 < len(entries) && replay(p, append(bytesOf(entries[:i]), entries[i+1:]...)...) == nil {
			t.Errorf("a log without entry %d was accepted", i)
		}
		if replay(p, append(bytesOf(entries[:i+1]), entries[i])...) == nil {
			t.Errorf("a log with entry %d twice was accepted", i)
		}
		for cut := range entries[i] {
			if replay(p, append(bytesOf(entries[:i]), entries[i][:cut])...) == nil {
				t.Fatalf("entry %d was accepted after truncation to %d bytes", i, cut)
			}
		}
	}
	for _, change := range []func(*Parameters){
		func(p *Parameters) { p.Rows++ }, func(p *Parameters) { p.K++ }, func(p *Parameters) { p.Seed++ }, func(p *Parameters) { p.Records++ },
	} {
		other := p
		change(&other)
		if err := replay(other, entries...); err == nil || !strings.Contains(err.Error(), "parameters") {
			t.Errorf("another index of %+v: %v", other, err)
		}
	}
}

// bytesOf returns a copy of a list, so that appending to it doesn't change the list.
func bytesOf(entries [][]byte) [][]byte { return append([][]byte(nil), entries...) }

// TestEntriesAreBounded writes the same batch with different limits.
func TestEntriesAreBounded(t *testing.T) {
	p := Parameters{Bands: 20, Rows: 13, K: 24, Seed: 42, Records: 300}
	s := newStream(rand.New(rand.NewPCG(1, 1)), p, mix{near: 0.3, mosaic: 0.3}, 300)
	x := newIndex(t, p)
	if _, err := x.Apply(s.positions, s.keys); err != nil {
		t.Fatal(err)
	}
	var wantRows, wantKeys []byte
	for _, limit := range []int{MaxEntry, p.MinEntry(), 4096, 65536} {
		entries, err := x.AppendLog(nil, 0, len(s.positions), limit)
		if err != nil {
			t.Fatal(err)
		}
		rows, keys := withoutHeaders(t, entries)
		if wantRows == nil {
			wantRows, wantKeys = rows, keys
			if len(entries) != 1 {
				t.Errorf("%d entries, want 1", len(entries))
			}
		}
		if !bytes.Equal(rows, wantRows) || !bytes.Equal(keys, wantKeys) {
			t.Errorf("the rows of entries of %d bytes differ", limit)
		}
		for _, e := range entries {
			if len(e) > limit {
				t.Errorf("an entry has %d bytes, want %d at most", len(e), limit)
			}
		}
	}
	for _, limit := range []int{p.MinEntry() - 1, MaxEntry + 1} {
		if _, err := x.AppendLog(nil, 0, len(s.positions), limit); err == nil {
			t.Errorf("a limit of %d bytes was accepted", limit)
		}
	}
}

// TestLargestRow covers MinEntry with the largest row: a record that carries over one label for each band, all of them distant.
func TestLargestRow(t *testing.T) {
	for _, bands := range []int{1, 20, MaxBands} {
		p := Parameters{Bands: bands, Rows: 1, K: 24, Records: 64}
		r := row{position: Position{Sequence: 1<<64 - 1, Record: 1<<64 - 1}, label: Position{Sequence: 1, Record: 1<<64 - 1}, inserted: 1<<bands - 1, carries: bands}
		for b := range bands {
			r.carried = append(r.carried, carry{1 << b, r.label})
		}
		if got := len(p.appendRow(nil, &r, Position{})) + 8*bands; got > p.maxRow() {
			t.Errorf("a row of %d bands has %d bytes, want %d at most", bands, got, p.maxRow())
		}
	}
}

// FuzzReplay replays any bytes as the second entry of a log. After a success, the index continues to work. After an error, it is unusable.
func FuzzReplay(f *testing.F) {
	p := Parameters{Bands: 3, Rows: 2, K: 24, Seed: 42, Records: 8}
	s := newStream(rand.New(rand.NewPCG(3, 4)), p, mix{near: 0.4, mosaic: 0.5}, 40)
	x, err := New(p, 8)
	if err != nil {
		f.Fatal(err)
	}
	var entries [][]byte
	for i := 0; i < 40; i += 5 {
		if _, err := x.Apply(s.positions[i:i+5], s.keysOf(i, i+5)); err != nil {
			f.Fatal(err)
		}
		if entries, err = x.AppendLog(entries, 0, 5, MaxEntry); err != nil {
			f.Fatal(err)
		}
	}
	for i, e := range entries {
		f.Add(uint8(i), e)
	}
	f.Fuzz(func(t *testing.T, n uint8, data []byte) {
		x := newIndex(t, p)
		for _, e := range entries[:int(n)%len(entries)] {
			if err := x.Replay(e); err != nil {
				t.Fatal(err)
			}
		}
		before := x.applied
		if err := x.Replay(data); err != nil {
			return
		}
		h, err := ReadHeader(data)
		if err != nil {
			t.Fatal(err)
		}
		if first := h.Generation*8 + uint64(h.First); before != 0 && before != first || x.applied != first+uint64(h.Records) {
			t.Fatalf("%d records after %d, and the header is %+v", x.applied, before, h)
		}
		if again := encodeAgain(t, data); !bytes.Equal(again, encodeAgain(t, again)) {
			t.Fatal("the first and the second encoding of an entry differ")
		}
	})
}

// encodeAgain decodes an entry and encodes its rows.
func encodeAgain(t *testing.T, entry []byte) []byte {
	t.Helper()
	h, err := ReadHeader(entry)
	if err != nil {
		t.Fatal(err)
	}
	d := newDecoder(h, entry)
	var rows []byte
	previous := h.Previous
	keys := bytes.Clone(d.keys)
	for range h.Records {
		r, err := d.next()
		if err != nil {
			t.Fatal(err)
		}
		rows = h.Parameters.appendRow(rows, &r, previous)
		previous = r.position
	}
	h.rowBytes = len(rows)
	return append(append(h.encode(nil), keys...), rows...)
}
