// Package simd has vectorized inner loops of the built-in operators' host kernels. They are C functions for x86-64 processors, one per
// instruction set. A program that was built without cgo, or for another architecture, has none.
//
// Package operator uses the fastest variant that the processor supports. If there is none, it uses its own Go code. The package's
// callers check all arguments, because the C functions check none.
package simd

// Minhash is a variant of the inner loop of the operator minhash.
type Minhash struct {
	Name string // instruction set, for example "AVX2"
	Sign SignFunc
}

// SignFunc writes the signature of the shingles of k characters that start in row[low:high] to record. The signature has 1 to 1024 entries,
// each a little-endian uint32. Without shingles, each entry is MaxUint32, which doesn't change a minimum. a and b have the factor and the
// summand of each entry, and a[0] is the seed of the hash. Their capacity is a multiple of Padding. scratch has an element for each byte of
// row[low:high].
type SignFunc func(record, row []byte, low, high, k int, a, b, scratch []uint32)

// Padding is a number of elements. The capacity of SignFunc's coefficients is a multiple of Padding.
const Padding = 16
