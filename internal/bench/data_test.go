package bench

import (
	"bytes"
	"slices"
	"testing"
)

func TestRandomCanBeMadeAgainInParts(t *testing.T) {
	whole := make([]byte, 1003)
	random(whole, 5, 0, ^uint64(0))
	for _, off := range []int{0, 8, 512, 1000} {
		part := make([]byte, len(whole)-off)
		random(part, 5, off, ^uint64(0))
		if !bytes.Equal(part, whole[off:]) {
			t.Errorf("the stretch from byte %d differs", off)
		}
	}
	other := make([]byte, 1003)
	random(other, 6, 0, ^uint64(0))
	if bytes.Equal(whole, other) {
		t.Error("seeds 5 and 6 give the same bytes")
	}
	random(other, 5, 0, asciiMask)
	for i, b := range other {
		if b != whole[i]&0x7f {
			t.Fatalf("byte %d is %#x, want %#x", i, b, whole[i]&0x7f)
		}
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
		t.Errorf("ragged sizes come to %d, want %d", sum(ragged), 16<<20)
	}
	sorted := slices.Sorted(slices.Values(ragged))
	// The median of so many draws is within a few percent of the distribution's.
	if ratio := float64(sorted[len(sorted)-1]) / float64(sorted[len(sorted)/2]); ratio < 90 || ratio > 110 {
		t.Errorf("the longest is %.1f times the median, want about 100", ratio)
	}
	if slices.Equal(ragged, raggedSizes(8191, 16<<20, 4)) {
		t.Error("seeds 3 and 4 give the same sizes")
	}
}

func TestSampleHoldsBothEndsAndNothingTwice(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 16, 17, 1000} {
		for _, most := range []int{2, 3, 16} {
			got := slices.Sorted(slices.Values(sample(n, most, 9)))
			if len(got) != min(n, most) || got[0] != 0 || got[len(got)-1] != n-1 {
				t.Errorf("%d of %d: %v", most, n, got)
			}
		}
	}
}

func TestSizesOfSlotsAreSpread(t *testing.T) {
	w, seen := newWords(mix{}, 1000), map[int]bool{}
	w.least = 500
	for slot := range 32 {
		n := w.length(slot)
		if n < 500 || n > 1000 || seen[n] {
			t.Errorf("slot %d gets %d", slot, n)
		}
		seen[n] = true
	}
}
