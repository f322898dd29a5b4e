//go:build cgo && amd64

package simd

// The directives tell cgo that the functions keep no pointers and don't call back into Go.

/*
#include "minhash.h"

#cgo noescape mr_minhash_avx2
#cgo nocallback mr_minhash_avx2
#cgo noescape mr_minhash_avx512
#cgo nocallback mr_minhash_avx512
*/
import "C"

import "unsafe"

// Minhashes returns the variants that this processor supports. The fastest is first.
func Minhashes() (variants []Minhash) {
	if C.mr_has_avx512() != 0 {
		variants = append(variants, Minhash{"AVX-512", signAVX512})
	}
	if C.mr_has_avx2() != 0 {
		variants = append(variants, Minhash{"AVX2", signAVX2})
	}
	return variants
}

func signAVX512(record, row []byte, low, high, k int, a, b, scratch []uint32) {
	C.mr_minhash_avx512(bytesOf(record), bytesOf(row), C.size_t(len(row)), C.size_t(low), C.size_t(high), C.uint32_t(k),
		C.uint32_t(len(record)/4), numbersOf(a), numbersOf(b), numbersOf(scratch))
}

func signAVX2(record, row []byte, low, high, k int, a, b, scratch []uint32) {
	C.mr_minhash_avx2(bytesOf(record), bytesOf(row), C.size_t(len(row)), C.size_t(low), C.size_t(high), C.uint32_t(k),
		C.uint32_t(len(record)/4), numbersOf(a), numbersOf(b), numbersOf(scratch))
}

func bytesOf(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

func numbersOf(n []uint32) *C.uint32_t { return (*C.uint32_t)(unsafe.SliceData(n)) }
