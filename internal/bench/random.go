package bench

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// golden is 2^64 divided by the golden ratio. Steps of this size visit all 64-bit numbers.
const golden = 0x9e3779b97f4a7c15

// hash64 is the output function of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators, 2014): close inputs give unrelated outputs.
func hash64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// derive returns the n-th seed derived from seed.
func derive(seed uint64, n int) uint64 { return hash64(seed + golden*uint64(n+1)) }

// asciiMask clears the top bit of every byte.
const asciiMask = 0x7f7f7f7f7f7f7f7f

// random fills dst with the bytes of seed's infinite random sequence from offset off, a multiple of 8, and-ed with
// mask. Any section can be recreated without the others, so nothing has to be kept for checks.
func random(dst []byte, seed uint64, off int, mask uint64) {
	n := uint64(off / 8)
	for ; len(dst) >= 8; dst, n = dst[8:], n+1 {
		binary.LittleEndian.PutUint64(dst, hash64(seed+golden*n)&mask)
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], hash64(seed+golden*n)&mask)
	copy(dst, last[:])
}

// uniformSizes returns n sizes that differ by at most one byte and add up to total.
func uniformSizes(n, total int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = (i+1)*total/n - i*total/n
	}
	return sizes
}

// raggedSizes returns n sizes (n is at least 2) that add up to total. They are log-normal with a sigma of 1, except for
// one size at a random place, which is 100 times their median.
func raggedSizes(n, total int, seed uint64) []int {
	const sigma, longest = 1.0, 100.0
	r := rand.New(rand.NewPCG(seed, golden))
	shares := []float64{longest} // relative to the median
	sum := longest
	for range n - 1 {
		x := math.Exp(sigma * r.NormFloat64())
		shares = append(shares, x)
		sum += x
	}
	r.Shuffle(n, func(i, j int) { shares[i], shares[j] = shares[j], shares[i] })
	sizes := make([]int, n)
	before, at := 0, 0.0
	for i, x := range shares {
		at += x
		end := int(math.Round(at / sum * float64(total)))
		sizes[i], before = end-before, end
	}
	return sizes
}
