package operator

import (
	"encoding/binary"
	"math"
)

// minhashGroup is the number of permutations that leastPermuted processes at a time. It divides simd.Padding.
const minhashGroup = 4

// signMinhash is the variant of minhash's host kernel in pure Go, a simd.SignFunc. It hashes the shingles once. Then it iterates over the
// hashes for a group of permutations at a time.
func signMinhash(record, row []byte, low, high, k int, a, b, scratch []uint32) {
	hashes := appendShingleHashes(scratch[:0], row, low, high, k, a[0])
	for i := 0; i < len(a); i += minhashGroup {
		least := leastPermuted(hashes, [minhashGroup]uint32(a[i:i+minhashGroup]), [minhashGroup]uint32(b[i:i+minhashGroup]))
		for j := range min(minhashGroup, len(a)-i) {
			binary.LittleEndian.PutUint32(record[4*(i+j):], least[j])
		}
	}
}

// leastPermuted returns the minima of hash*a + b over all hashes, for each permutation. Without hashes, the minima are MaxUint32.
// The comparisons include equality because the compiler then chooses a conditional move, which takes half the time.
func leastPermuted(hashes []uint32, a, b [minhashGroup]uint32) [minhashGroup]uint32 {
	a0, a1, a2, a3 := a[0], a[1], a[2], a[3] // in registers, unlike arrays
	b0, b1, b2, b3 := b[0], b[1], b[2], b[3]
	least0, least1, least2, least3 := uint32(math.MaxUint32), uint32(math.MaxUint32), uint32(math.MaxUint32), uint32(math.MaxUint32)
	for _, hash := range hashes {
		if x := hash*a0 + b0; x <= least0 {
			least0 = x
		}
		if x := hash*a1 + b1; x <= least1 {
			least1 = x
		}
		if x := hash*a2 + b2; x <= least2 {
			least2 = x
		}
		if x := hash*a3 + b3; x <= least3 {
			least3 = x
		}
	}
	return [minhashGroup]uint32{least0, least1, least2, least3}
}

// appendShingleHashes appends the hashes of the shingles that start in row[low:high]. A shingle may end after high. The start and
// the end of the shingle advance together, so each byte of row is examined twice.
func appendShingleHashes(dst []uint32, row []byte, low, high, k int, seed uint32) []uint32 {
	start := characterStart(row, low)
	if start >= high {
		return dst
	}
	end, characters := start, 0
	for characters < k && end < len(row) {
		end = characterStart(row, end+1)
		characters++
	}
	if characters < k && start > 0 {
		return dst // only a row with fewer than k characters has a shorter shingle
	}
	for {
		dst = append(dst, max(murmur3(row[start:end], seed), 1))
		if end == len(row) {
			return dst
		}
		start = characterStart(row, start+1)
		if start >= high {
			return dst
		}
		end = characterStart(row, end+1)
	}
}

// characterStart returns the first position from i on where a character starts, or the end of the row.
func characterStart(row []byte, i int) int {
	for i > 0 && i < len(row) && row[i]&0xC0 == 0x80 {
		i++
	}
	return i
}
