package neardup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"millrace/internal/device"
)

// indexTables implements Tables with an Index.
type indexTables struct {
	*Index
	verdicts []Verdict
	keys     []byte // keys of the last batch
}

func (t *indexTables) Apply(positions []Position, keys []byte) (hits, carries int, err error) {
	var numbers []uint64
	t.keys = slices.Clone(keys)
	for ; len(keys) > 0; keys = keys[KeyBytes:] {
		numbers = append(numbers, binary.LittleEndian.Uint64(keys))
	}
	if t.verdicts, err = t.Index.Apply(positions, numbers); err != nil {
		return 0, 0, err
	}
	for _, v := range t.verdicts {
		if v.Bands > 0 {
			hits++
		}
	}
	if t.parts[1] > 0 {
		return hits, t.spare.carried, nil
	}
	return hits, t.young.carried, nil
}

func (t *indexTables) Read(i int, result *Result) {
	r, v, stride := t.rows[i], t.verdicts[i], t.parameters.Bands*KeyBytes
	*result = Result{
		Position: r.position, Label: r.label, Hits: v.Bands, Also: v.Also, Inserted: r.inserted, Keys: t.keys[i*stride:][:stride], Carries: r.carries, Relabeled: r.relabeled,
		Carried: result.Carried[:0],
	}
	for _, c := range r.carried {
		result.Carried = append(result.Carried, CarryOver{Label: c.label, Bands: c.bands})
	}
}

func (t *indexTables) Inserts() *Inserts { return &Inserts{} }

func (t *indexTables) Replay(r *Inserts) error {
	t.commit()
	switch {
	case t.applied == t.end() && r.First == 0:
		t.beginGeneration()
	case t.applied == 0:
		t.applied = uint64(r.First)
	}
	g := t.young
	for i, label := range r.Labels {
		g.positions[int(g.firstRecord)+r.First+i] = label
	}
	copy(g.positions[r.FirstCarried:], r.CarriedLabels)
	for i, key := range r.Keys {
		slot, _ := g.find(key)
		g.keys[slot], g.labels[slot] = key, r.KeyLabels[i]
	}
	g.carried += r.Carries
	t.applied += uint64(len(r.Labels))
	return nil
}

func (t *indexTables) Bytes() int64 { return 0 }
func (t *indexTables) Close() error { return nil }

// states returns a state on a CPU, and a state with indexTables as its tables.
func states(t *testing.T, p Parameters) map[string]device.State {
	t.Helper()
	cpu, err := NewState(p, p.Records)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]device.State{"cpu": cpu, "tables": NewDeviceState(p, p.Records, &indexTables{Index: newIndex(t, p)})}
}

// TestStates applies a stream in random batches to each kind of state, undoes some of them and applies them again. It replays the log of
// each state into new states of each kind, which continue the stream.
func TestStates(t *testing.T) {
	eachStream(t, 300, func(t *testing.T, random *rand.Rand, s *stream) {
		want := s.expected()
		half := random.IntN(len(want))
		for name, x := range states(t, s.parameters) {
			log := s.applyToState(t, random, x, want, 0, half)
			for other, y := range states(t, s.parameters) {
				for _, entry := range log {
					if err := y.Replay(entry); err != nil {
						t.Fatalf("the log of %s into %s: %v", name, other, err)
					}
				}
				s.applyToState(t, random, y, want, half, len(want))
			}
		}
	})
}

// applyToState applies the records [first, end) in random batches and returns the log. It compares the values with the verdicts in want.
func (s *stream) applyToState(t *testing.T, random *rand.Rand, x device.State, want []Verdict, first, end int) (log [][]byte) {
	t.Helper()
	for first < end {
		n := min(1+random.IntN(s.parameters.Records), end-first)
		var keys []byte
		for _, key := range s.keysOf(first, first+n) {
			keys = binary.LittleEndian.AppendUint64(keys, key)
		}
		d, err := x.Apply(s.positions[first:first+n], keys)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if got := d.AppendValue(nil, i); !bytes.Equal(got, want[first+i].AppendValue(nil)) {
				v, _ := ReadValue(got)
				t.Fatalf("record %d has the verdict %+v, want %+v", first+i, v, want[first+i])
			}
		}
		if random.IntN(3) == 0 {
			if err := x.Undo(); err != nil {
				t.Fatal(err)
			}
			if err := x.Undo(); err == nil {
				t.Fatal("a batch was undone twice")
			}
			continue
		}
		for from := 0; from < n; {
			to := from + 1 + random.IntN(n-from)
			if log, err = d.AppendLog(log, from, to, s.parameters.MinEntry()+100); err != nil {
				t.Fatal(err)
			}
			from = to
		}
		first += n
	}
	if records, last := x.Applied(); end > 0 && (records != uint64(end) || last != s.positions[end-1]) {
		t.Fatalf("%d records up to %v, want %d", records, last, end)
	}
	return log
}

// TestStatsOfAState checks the statistics of a state in its second generation. Some batches were undone and applied again.
func TestStatsOfAState(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	p := Parameters{Bands: 3, Rows: 2, K: 5, Seed: 1, Records: 40}
	s := newStream(random, p, mix{near: 0.5}, 50)
	want, hits := s.expected(), uint64(0)
	for _, v := range want {
		if v.Bands > 0 {
			hits++
		}
	}
	for name, x := range states(t, p) {
		s.applyToState(t, rand.New(rand.NewPCG(1, 2)), x, want, 0, 50)
		got := x.Stats()
		if got.Records != 50 || got.Generation != 1 || got.Load != 0.25 || got.Hits != hits || got.Decided != 50 {
			t.Errorf("%s: %+v, want 50 records, 10 of them in generation 1, and %d hits in 50 decisions", name, got, hits)
		}
	}
}

// TestDeviceStateChecksBands changes the band of each key in turn.
func TestDeviceStateChecksBands(t *testing.T) {
	t.Parallel()
	for _, bands := range []int{1, 3, 20, MaxBands} {
		p := Parameters{Bands: bands, Rows: 1, K: 5, Records: 10}
		s := newStream(rand.New(rand.NewPCG(1, uint64(bands))), p, mix{}, 7)
		var keys []byte
		for _, key := range s.keysOf(0, 7) {
			keys = binary.LittleEndian.AppendUint64(keys, key)
		}
		x := states(t, p)["tables"]
		for i := range 7 * bands {
			wrong := slices.Clone(keys)
			wrong[i*KeyBytes] ^= 1
			if _, err := x.Apply(s.positions, wrong); !errors.Is(err, device.ErrInvalid) {
				t.Fatalf("%d bands: key %d is of another band: %v", bands, i, err)
			}
		}
		if _, err := x.Apply(s.positions, keys); err != nil {
			t.Errorf("%d bands: %v", bands, err)
		}
	}
}
