package neardup

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// stream is a stream of records with their keys.
type stream struct {
	parameters Parameters
	positions  []Position
	keys       []uint64
}

// keysOf returns the keys of the records from first to end.
func (s *stream) keysOf(first, end int) []uint64 {
	return s.keys[first*s.parameters.Bands : end*s.parameters.Bands]
}

// mix describes a kind of stream by the probabilities that a record shares bands with earlier records.
type mix struct {
	name     string
	near     float64 // probability that a record copies most bands of one earlier record
	recent   int     // maximum distance to that earlier record; 0 is the whole stream
	mosaic   float64 // probability that a record copies each band from a different earlier record
	chain    bool    // whether each record shares one band with the previous record
	universe int     // number of different values of a band; 0 is unlimited
}

var mixes = []mix{
	{name: "unrelated"},
	{name: "near", near: 0.5},
	{name: "recent", near: 0.5, recent: 7},
	{name: "chain", chain: true},
	{name: "chain and near", chain: true, near: 0.3, recent: 20},
	{name: "equal", universe: 1},
	{name: "contention", universe: 3},
	{name: "crowded", universe: 40},
	{name: "mosaic", near: 0.1, mosaic: 0.7},
	{name: "mosaic of recent", near: 0.1, mosaic: 0.8, recent: 30},
}

// newStream returns n records. Signature values are small numbers, unlike those of minhash, so AppendKeys must mix them.
func newStream(random *rand.Rand, p Parameters, m mix, n int) *stream {
	s := &stream{parameters: p}
	position := Position{Sequence: 1 + random.Uint64N(1000)}
	bands := make([][]uint32, 0, n*p.Bands)
	fresh := uint32(0)
	earlier := func(r int) int {
		if m.recent > 0 {
			return r - 1 - random.IntN(min(m.recent, r))
		}
		return random.IntN(r)
	}
	for r := range n {
		isNear, isMosaic := r > 0 && random.Float64() < m.near, r > 0 && random.Float64() < m.mosaic
		source, shared := 0, random.IntN(p.Bands)
		if isNear {
			source = earlier(r)
		}
		for b := range p.Bands {
			switch {
			case m.chain && r > 0 && b == shared:
				bands = append(bands, bands[(r-1)*p.Bands+b])
			case isNear && random.IntN(4) > 0:
				bands = append(bands, bands[source*p.Bands+b])
			case isMosaic:
				bands = append(bands, bands[earlier(r)*p.Bands+b])
			case m.universe > 0:
				bands = append(bands, bandValues(p, uint32(random.IntN(m.universe))))
			default:
				fresh++
				bands = append(bands, bandValues(p, fresh))
			}
		}
		s.keys = p.AppendKeys(s.keys, slices.Concat(bands[r*p.Bands:]...))
		if position.Record++; random.IntN(3) == 0 {
			position = Position{Sequence: position.Sequence + 1 + random.Uint64N(300), Record: random.Uint64N(3)}
		}
		s.positions = append(s.positions, position)
	}
	return s
}

// bandValues returns the values of a band. For different numbers, only one value differs.
func bandValues(p Parameters, number uint32) []uint32 {
	values := make([]uint32, p.Rows)
	values[int(number)%p.Rows] = number
	return values
}

// expected returns the reference's verdicts.
func (s *stream) expected() []Verdict {
	r := NewReference(s.parameters)
	var verdicts []Verdict
	for i, position := range s.positions {
		verdicts = append(verdicts, r.Apply(position, s.keysOf(i, i+1)))
	}
	return verdicts
}

// shapes are the parameters of most tests.
var shapes = []Parameters{
	{Bands: 1, Rows: 1, K: 24, Seed: 42, Records: 9},
	{Bands: 3, Rows: 2, K: 5, Seed: 1, Records: 31},
	{Bands: 20, Rows: 13, K: 24, Seed: 42, Records: 64},
	{Bands: 64, Rows: 3, K: 24, Seed: 42, Records: 17},
	{Bands: 20, Rows: 4, K: 24, Seed: 42, Records: 150},
}

// eachStream runs a test with streams of all kinds, in all shapes.
func eachStream(t *testing.T, n int, test func(t *testing.T, random *rand.Rand, s *stream)) {
	for i, p := range shapes {
		for j, m := range mixes {
			t.Run(fmt.Sprintf("%dx%d of %d/%s", p.Bands, p.Rows, p.Records, m.name), func(t *testing.T) {
				random := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				test(t, random, newStream(random, p, m, n))
			})
		}
	}
}

// sameVerdicts compares the verdicts on consecutive records. first is the index of the first record.
func sameVerdicts(t *testing.T, got, want []Verdict, first int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d verdicts, want %d", len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		if g.DuplicateOf != w.DuplicateOf || g.Bands != w.Bands || !slices.Equal(g.Also, w.Also) {
			t.Fatalf("record %d: %v, want %v", first+i, g, w)
		}
	}
}

// newIndex returns an index that accepts the largest possible batches.
func newIndex(t *testing.T, p Parameters) *Index {
	t.Helper()
	x, err := New(p, p.Records)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// applyFrom applies the records from first to end in batches of the sizes that next returns, and compares the verdicts. It calls after with
// the index after each batch.
func (s *stream) applyFrom(t *testing.T, x *Index, want []Verdict, first, end int, next func() int, after func()) {
	t.Helper()
	for first < end {
		n := min(end-first, next())
		verdicts, err := x.Apply(s.positions[first:first+n], s.keysOf(first, first+n))
		if err != nil {
			t.Fatal(err)
		}
		sameVerdicts(t, verdicts, want[first:first+n], first)
		after()
		first += n
	}
}

// arrangements returns functions that return the size of the next batch.
func (s *stream) arrangements(random *rand.Rand) map[string]func() int {
	most := s.parameters.Records
	constant := func(n int) func() int { return func() int { return n } }
	return map[string]func() int{
		"one": constant(1), "two": constant(min(2, most)), "most": constant(most), "almost": constant(max(1, most-1)),
		"mixed": func() int { return 1 + random.IntN(most) },
		"few":   func() int { return 1 + random.IntN(min(5, most)) },
	}
}
