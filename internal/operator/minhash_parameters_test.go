package operator

import (
	"math"
	"testing"
)

// TestMersenneTwisterVectors: the C++ standard defines these outputs for the default seed of std::mt19937.
func TestMersenneTwisterVectors(t *testing.T) {
	random := newMersenneTwister(5489)
	first := random.next()
	var last uint32
	for range 9999 {
		last = random.next()
	}
	if first != 3499211612 || last != 4123659995 {
		t.Errorf("outputs 1 and 10000 are %d and %d, want 3499211612 and 4123659995", first, last)
	}
}

// TestCoefficientsAreNumpys: numpy 1.24.2 computed the coefficients, with RandomState(seed) and randint.
func TestCoefficientsAreNumpys(t *testing.T) {
	type pair struct{ a, b uint32 }
	for seed, wants := range map[uint32]map[int]pair{
		42: {0: {1608637543, 1273642419}, 1: {1935803229, 787846414}, 2: {996406379, 1201263687}, 3: {423734973, 415968276},
			127: {1549326057, 1309025538}, 259: {417369880, 897299057}, 1023: {2023179762, 1811456826}},
		0: {0: {209652397, 398764591}, 127: {1295253974, 928033055}, 259: {1254764091, 1232290737}, 1023: {1926465926, 575306106}},
		1: {0: {1791095846, 2135392491}, 127: {1469011502, 1195370327}, 259: {372946346, 848296825}, 1023: {1493362126, 1595000831}},
		math.MaxUint32: {0: {419326372, 479346978}, 127: {1124652137, 1095959185}, 259: {532341002, 470168740},
			1023: {1575876918, 2067983187}},
	} {
		a, b := coefficients(seed, 1024)
		for i, want := range wants {
			if got := (pair{a[i], b[i]}); got != want {
				t.Errorf("seed %d, entry %d: %v, want %v", seed, i, got, want)
			}
		}
	}
}

// TestFewerCoefficientsAreTheFirst: a signature with fewer entries is the beginning of a signature with more entries.
func TestFewerCoefficientsAreTheFirst(t *testing.T) {
	all, alsoAll := coefficients(7, 1024)
	for _, n := range []int{1, 2, 15, 16, 17, 1023} {
		a, b := coefficients(7, n)
		for i := range n {
			if a[i] != all[i] || b[i] != alsoAll[i] {
				t.Fatalf("%d entries: entry %d is (%d, %d), want (%d, %d)", n, i, a[i], b[i], all[i], alsoAll[i])
			}
		}
		if len(a) != n || len(b) != n || cap(a)%16 != 0 || cap(b)%16 != 0 {
			t.Errorf("%d entries: lengths %d and %d, capacities %d and %d, want multiples of 16", n, len(a), len(b), cap(a), cap(b))
		}
	}
}

// TestBetweenStaysInItsRange: every number of a small range occurs, and no other number does.
func TestBetweenStaysInItsRange(t *testing.T) {
	random := newMersenneTwister(1)
	for _, span := range []uint32{1, 2, 3, 5, 8} {
		seen := make(map[uint32]bool)
		for range 500 {
			seen[random.between(10, 10+span)] = true
		}
		for n := range span {
			if !seen[10+n] {
				t.Errorf("%d never occurs from 10 to %d", 10+n, 9+span)
			}
		}
		if len(seen) != int(span) {
			t.Errorf("%v: %d numbers, want %d", seen, len(seen), span)
		}
	}
}
