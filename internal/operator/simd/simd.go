// Package simd has vectorized inner loops of the built-in operators' host kernels. They are C functions for x86-64 processors, one per
// instruction set. A program that was built without cgo, or for another architecture, has none.
//
// Package operator uses the fastest variant that the processor supports, and its own Go code without one. The package's callers check
// all arguments, because the C functions check none.
package simd

// Padding is the number of elements of which the coefficients of Minhash have a multiple.
const Padding = 16

// Minhash is a variant of the inner loop of the operator minhash.
type Minhash struct {
	Name string // instruction set, for example "AVX2"

	// Sign writes to record the signature of the shingles of k characters that start in row[low:high]. Each entry is a little-endian
	// uint32, which is MaxUint32 without shingles. a and b have the factor and the summand of each entry. Their capacity is a multiple of
	// Padding. scratch has an element for each byte of row[low:high]. The record has at most 4096 bytes and at least 4.
	Sign func(record, row []byte, low, high, k int, a, b, scratch []uint32)
}
