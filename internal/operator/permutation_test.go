package operator

import (
	"math"
	"math/big"
	"testing"
)

// TestSplitmix64Vectors uses the published first outputs of splitmix64 for these seeds.
func TestSplitmix64Vectors(t *testing.T) {
	for _, v := range []struct {
		seed uint64
		want []uint64
	}{
		{0, []uint64{0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F}},
		{1234567, []uint64{
			6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
		}},
	} {
		random := splitmix64(v.seed)
		for i, want := range v.want {
			if got := random.next(); got != want {
				t.Errorf("seed %d, output %d: %d, want %d", v.seed, i, got, want)
			}
		}
	}
}

func TestPermutationsAreDrawnInOrder(t *testing.T) {
	random := splitmix64(77)
	for i, p := range permutations(77, 1024) {
		a, b := random.next()%(mersenne61-1)+1, random.next()%mersenne61
		if p != (permutation{a, b}) {
			t.Fatalf("permutation %d is %v, want %d, %d", i, p, a, b)
		}
		if p.a < 1 || p.a >= mersenne61 || p.b >= mersenne61 {
			t.Fatalf("permutation %d is out of range: %v", i, p)
		}
	}
}

// TestReductionAtItsEdges constructs rare cases of the reduction modulo 2^61-1, where high + low reaches the modulus.
// For each a, it chooses b so that a*h + b is at or next to a multiple of the modulus.
func TestReductionAtItsEdges(t *testing.T) {
	as := []uint64{1, 2, 3, 1 << 31, 1 << 32, 1<<60 - 1, 1 << 60, mersenne61 - 2, mersenne61 - 1}
	hashes := []uint32{0, 1, 2, 3, 1 << 16, 1<<31 - 1, 1 << 31, math.MaxUint32 - 1, math.MaxUint32}
	for _, a := range as {
		for _, hash := range hashes {
			product := slowPermuted(a, 0, hash)
			for beside := -3; beside <= 3; beside++ {
				b := uint64((2*mersenne61 - int64(product) + int64(beside)) % mersenne61)
				checkPermuted(t, permutation{a, b}, hash)
			}
			for _, b := range []uint64{0, 1, mersenne61 - 1} {
				checkPermuted(t, permutation{a, b}, hash)
			}
		}
	}
}

func TestReductionAtRandom(t *testing.T) {
	random := splitmix64(5)
	for _, p := range permutations(6, 1000) {
		for range 20 {
			checkPermuted(t, p, uint32(random.next()))
		}
	}
}

// checkPermuted compares the reference and both halves of the kernel's loop with big integers.
func checkPermuted(t *testing.T, p permutation, hash uint32) {
	t.Helper()
	want := uint32(slowPermuted(p.a, p.b, hash))
	if got := p.low32(hash); got != want {
		t.Fatalf("reference: (%d*%d + %d) mod p = %d, want %d", p.a, hash, p.b, got, want)
	}
	scaled := permutation{p.a << 3, p.b << 3}
	if first, second := lowestPermuted([]uint32{hash}, scaled, scaled); first != want || second != want {
		t.Fatalf("kernel: (%d*%d + %d) mod p = %d and %d, want %d", p.a, hash, p.b, first, second, want)
	}
}

// slowPermuted returns all 61 bits of (a*hash + b) mod (2^61-1).
func slowPermuted(a, b uint64, hash uint32) uint64 {
	x := new(big.Int).SetUint64(a)
	x.Mul(x, big.NewInt(int64(hash)))
	x.Add(x, new(big.Int).SetUint64(b))
	p := new(big.Int).Lsh(big.NewInt(1), 61)
	p.Sub(p, big.NewInt(1))
	return x.Mod(x, p).Uint64()
}
