package neardup

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

// sliceBytes returns the memory of all slices in a value. Slices that share memory count once.
func sliceBytes(v reflect.Value) (total int64) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			total = sliceBytes(v.Elem())
		}
	case reflect.Slice:
		total = int64(v.Cap()) * int64(v.Type().Elem().Size())
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Type == reflect.TypeFor[step]() {
				total += sliceBytes(v.Field(i).FieldByName("scratch"))
			} else {
				total += sliceBytes(v.Field(i))
			}
		}
	}
	return total
}

// TestBytesIsExact compares Bytes with the memory of a new index.
func TestBytesIsExact(t *testing.T) {
	for _, p := range shapes {
		for _, batch := range []int{1, p.Records / 2, p.Records} {
			x, err := New(p, batch)
			if err != nil {
				t.Fatal(err)
			}
			want, err := Bytes(p, batch)
			if err != nil {
				t.Fatal(err)
			}
			if got := sliceBytes(reflect.ValueOf(x)); got != want {
				t.Errorf("%+v in batches of %d: %d bytes, want %d", p, batch, got, want)
			}
			state, err := NewState(p, batch)
			if err != nil {
				t.Fatal(err)
			}
			if want, err = StateBytes(p, batch); err != nil {
				t.Fatal(err)
			}
			if got := sliceBytes(reflect.ValueOf(state)); got != want || state.Stats().Bytes != want {
				t.Errorf("a state of %+v in batches of %d: StateBytes is %d and Stats has %d bytes, want %d", p, batch, got, state.Stats().Bytes, want)
			}
		}
	}
}

// TestApplyAllocatesNothingPerRecord covers new generations and all kinds of hits.
func TestApplyAllocatesNothingPerRecord(t *testing.T) {
	p := Parameters{Bands: 20, Rows: 4, K: 24, Seed: 42, Records: 90}
	s := newStream(newRandom(), p, mix{near: 0.3, mosaic: 0.4}, 90*120)
	x, err := New(p, 40)
	if err != nil {
		t.Fatal(err)
	}
	first := 0
	if n := testing.AllocsPerRun(200, func() {
		if _, err := x.Apply(s.positions[first:first+40], s.keysOf(first, first+40)); err != nil {
			t.Fatal(err)
		}
		first += 40
	}); n > 20 { // allocations of closures for each part of a step
		t.Errorf("%v allocations per batch of 40 records", n)
	}
}

// TestDocumentsIn72GB checks the figure in docs/adr/0055-near-duplicates.md.
func TestDocumentsIn72GB(t *testing.T) {
	p := Parameters{Bands: 20, Rows: 13, K: 24, Seed: 42, Records: 108_000_000}
	if got, err := Bytes(p, 65536); err != nil || got > 72e9 {
		t.Errorf("216 million documents need %d bytes, %v", got, err)
	}
}

func TestLimits(t *testing.T) {
	good := Parameters{Bands: 20, Rows: 13, K: 24, Seed: 42, Records: 1000}
	for _, c := range []struct {
		change func(*Parameters)
		names  string
	}{
		{func(p *Parameters) { p.Bands = 0 }, "bands is 0"},
		{func(p *Parameters) { p.Bands = MaxBands + 1 }, "bands is 65"},
		{func(p *Parameters) { p.Rows = 0 }, "rows is 0"},
		{func(p *Parameters) { p.Rows = math.MaxInt }, "rows is"},
		{func(p *Parameters) { p.Rows = 52 }, "bands times rows is 1040"},
		{func(p *Parameters) { p.K = 0 }, "k is 0"},
		{func(p *Parameters) { p.K = 257 }, "k is 257"},
		{func(p *Parameters) { p.Records = 0 }, "a generation has 0 records"},
		{func(p *Parameters) { p.Records = MaxRecords + 1 }, "a generation has"},
		{func(p *Parameters) { p.Records = 9 }, "a batch of 10 records"},
	} {
		p := good
		c.change(&p)
		if _, err := New(p, 10); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%+v: %v, want %q", p, err, c.names)
		}
	}
	for _, batch := range []int{0, -1, MaxBatch + 1} {
		if _, err := Bytes(Parameters{Bands: 20, Rows: 13, K: 24, Records: MaxRecords}, batch); err == nil {
			t.Errorf("batches of %d records are accepted", batch)
		}
	}
	if _, err := Bytes(Parameters{Bands: MaxBands, Rows: 16, K: 24, Records: MaxRecords}, MaxBatch); err != nil {
		t.Errorf("the largest index: %v", err)
	}
}

// TestApplyRefuses: a call that Apply refuses leaves the index unchanged.
func TestApplyRefuses(t *testing.T) {
	p := Parameters{Bands: 3, Rows: 2, K: 24, Seed: 42, Records: 50}
	s := newStream(newRandom(), p, mix{near: 0.3}, 50)
	want := s.expected()
	x, err := New(p, 10)
	if err != nil {
		t.Fatal(err)
	}
	s.applyFrom(t, x, want, 0, 10, func() int { return 10 }, func() {})
	zero := append([]uint64{0}, s.keysOf(10, 11)[1:]...)
	swapped := []uint64{s.keys[31], s.keys[30], s.keys[32]}
	for _, c := range []struct {
		name      string
		positions []Position
		keys      []uint64
	}{
		{"too many", s.positions[10:21], s.keysOf(10, 21)},
		{"too few keys", s.positions[10:12], s.keysOf(10, 11)},
		{"again", s.positions[9:10], s.keysOf(9, 10)},
		{"not in order", []Position{s.positions[12], s.positions[11]}, s.keysOf(11, 13)},
		{"key 0", s.positions[10:11], zero},
		{"keys of other bands", s.positions[10:11], swapped},
	} {
		if _, err := x.Apply(c.positions, c.keys); err == nil {
			t.Errorf("%s: no error", c.name)
		}
	}
	if records, last := x.Applied(); records != 10 || last != s.positions[9] {
		t.Errorf("%d records up to %v", records, last)
	}
	if err := x.Undo(); err != nil {
		t.Errorf("a refused batch made the previous batch permanent: %v", err)
	}
	s.applyFrom(t, x, want, 0, 50, func() int { return 7 }, func() {})
	empty, err := New(p, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := empty.Apply([]Position{{Sequence: 0, Record: 4}}, s.keysOf(0, 1)); err == nil {
		t.Error("a position of sequence 0 was accepted")
	}
}
