package bench

import (
	"bytes"
	"slices"
	"testing"
)

func TestRandomDependsOnlyOnTheSeed(t *testing.T) {
	of := func(seed, mask uint64) []byte {
		data := make([]byte, 1003)
		random(data, seed, mask)
		return data
	}
	all := of(5, ^uint64(0))
	if !bytes.Equal(all, of(5, ^uint64(0))) || bytes.Equal(all, of(6, ^uint64(0))) {
		t.Error("the bytes don't depend on the seed alone")
	}
	for i, b := range of(5, asciiMask) {
		if b != all[i]&0x7f {
			t.Fatalf("byte %d is %#x, want %#x", i, b, all[i]&0x7f)
		}
	}
}

// TestPiecesAreThoseOfTheWhole also checks that only a different seed changes the content of a slot.
func TestPiecesAreThoseOfTheWhole(t *testing.T) {
	whole, quarter := newWords(mix{}, 4000), newWords(mix{}, 1000)
	quarter.whole = whole
	var joined []byte
	for slot := range 4 {
		joined = append(joined, quarter.content(slot, 1).memory...)
	}
	if !bytes.Equal(joined, whole.content(0, 1).memory) {
		t.Error("the pieces differ from the whole")
	}
	if bytes.Equal(joined, whole.content(0, 2).memory) || bytes.Equal(joined[:1000], quarter.content(0, 2).memory) {
		t.Error("seeds 1 and 2 give the same bytes")
	}
	if !bytes.Equal(joined[:1000], quarter.content(0, 1).memory) {
		t.Error("seed 1 gives different bytes the second time")
	}
}

func TestSizes(t *testing.T) {
	sum := func(sizes []int) (n int) {
		for _, s := range sizes {
			n += s
		}
		return n
	}
	uniform := uniformSizes(7, 1000)
	if sum(uniform) != 1000 || slices.Max(uniform)-slices.Min(uniform) > 1 {
		t.Errorf("uniform sizes are %v", uniform)
	}
	ragged := raggedSizes(8191, 16<<20, 3)
	if sum(ragged) != 16<<20 {
		t.Errorf("ragged sizes add up to %d, want %d", sum(ragged), 16<<20)
	}
	sorted := slices.Sorted(slices.Values(ragged))
	// The median of that many draws is within a few percent of the distribution's median.
	if ratio := float64(sorted[len(sorted)-1]) / float64(sorted[len(sorted)/2]); ratio < 90 || ratio > 110 {
		t.Errorf("the longest is %.1f times the median, want about 100", ratio)
	}
	if slices.Equal(ragged, raggedSizes(8191, 16<<20, 4)) {
		t.Error("seeds 3 and 4 give the same sizes")
	}
}

func TestSampleHoldsBothEndsAndNothingTwice(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 16, 17, 1000} {
		for _, maximum := range []int{2, 3, 16} {
			got := slices.Sorted(slices.Values(sample(n, maximum, 9)))
			if len(got) != min(n, maximum) || got[0] != 0 || got[len(got)-1] != n-1 {
				t.Errorf("%d of %d: %v", maximum, n, got)
			}
		}
	}
}

func TestSizesOfSlotsAreSpread(t *testing.T) {
	w, seen := newWords(mix{}, 1000), map[int]bool{}
	w.min = 500
	for slot := range 32 {
		n := w.length(slot)
		if n < 500 || n > 1000 || seen[n] {
			t.Errorf("slot %d gets %d", slot, n)
		}
		seen[n] = true
	}
}
