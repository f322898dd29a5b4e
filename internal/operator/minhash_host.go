package operator

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"millrace/internal/device"
	"millrace/internal/operator/compiled"
)

// minhashPieceUnits is the size of a piece in the units of batch. The hashes of a piece's shingles (4 bytes each) fit
// in a core's L1 cache while every permutation iterates over them.
const minhashPieceUnits = 4 << 10

// minhashHost is the host kernel. It hashes the shingles of a piece once, into scratch. Then it iterates over the
// hashes for two permutations at a time, with both minima in registers.
type minhashHost struct{ description *compiled.Description }

func (minhashHost) Name() string { return minhashName }

func (m minhashHost) Bind(params []byte) (device.BoundHostKernel, error) {
	c, err := minhashConfigOf(m.description, params)
	if err != nil {
		return nil, device.Errorf("bind minhash", "", device.ErrInvalid, "%v", err)
	}
	scaled := permutations(c.seed, c.hashes)
	for i := range scaled {
		scaled[i].a <<= 3
		scaled[i].b <<= 3
	}
	return minhashKernel{minhashParameters: c, scaled: scaled, pieceUnits: minhashPieceUnits}, nil
}

// minhashKernel is the kernel with its parameters.
type minhashKernel struct {
	minhashParameters
	scaled     []permutation // a and b times 8, for lowestPermuted
	pieceUnits int
}

// Needs requests scratch for one hash per byte, because at most one shingle starts at each byte. It also requests
// scratch for one signature per piece: the signature of its first part, if that part continues a row from an earlier
// piece.
func (m minhashKernel) Needs(s device.Shape) device.Needs {
	n := device.Needs{Scratch: 4 * s.Bytes, Result: s.Rows * 4 * m.hashes}
	if pieces := pieceCount(s.Rows, s.Bytes, m.pieceUnits); pieces > 1 {
		n.Scratch += pieces * 4 * m.hashes
	}
	return n
}

func (m minhashKernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	b, err := prepare(minhashName, m, rows, offsets, scratch, result, m.pieceUnits)
	if err != nil {
		return err
	}
	var (
		stride    = 4 * m.hashes
		hashBytes = 4 * b.shape().Bytes
		aside     = scratch[hashBytes:]
	)
	hashes, err := asUint32(scratch[:hashBytes])
	if err != nil {
		return err
	}
	parallel(b.pieces(), func(piece int) {
		for p, ok := b.first(piece); ok; p, ok = b.next(p) {
			record := result[p.row*stride:][:stride]
			if !p.begins {
				record = aside[piece*stride:][:stride]
			}
			m.sign(record, b, p, hashes)
		}
	})
	for piece := range b.pieces() {
		if p, ok := b.first(piece); ok && !p.begins {
			mergeSignature(result[p.row*stride:][:stride], aside[piece*stride:])
		}
	}
	return nil
}

// sign writes the signature of the shingles that start in part p to record. It stores their hashes in the scratch
// memory for the part's bytes.
func (m minhashKernel) sign(record []byte, b batch, p part, hashes []uint32) {
	var (
		start = int(b.offsets[p.row])
		row   = b.rows[start:b.offsets[p.row+1]]
		base  = int(b.offsets[0])
	)
	hashes = appendShingleHashes(hashes[p.low-base:p.low-base:p.high-base], row, p.low-start, p.high-start, m.k)
	for i := 0; i < m.hashes; i += 2 {
		j := min(i+1, m.hashes-1) // with an odd number of hashes, the last entry is computed twice
		first, second := lowestPermuted(hashes, m.scaled[i], m.scaled[j])
		binary.LittleEndian.PutUint32(record[4*i:], first)
		binary.LittleEndian.PutUint32(record[4*j:], second)
	}
}

// appendShingleHashes appends the hashes of the shingles that start in row[low:high]. A shingle may end after high.
// Start and end of the shingle advance together, so each byte of row is examined twice.
func appendShingleHashes(dst []uint32, row []byte, low, high, k int) []uint32 {
	start := characterStart(row, low)
	if start >= high {
		return dst
	}
	end, characters := start, 0
	for characters < k && end < len(row) {
		end = characterStart(row, end+1)
		characters++
	}
	if characters < k {
		if start == 0 {
			dst = append(dst, murmur3(row, 0)) // a row with fewer than k characters is one shingle
		}
		return dst
	}
	for {
		dst = append(dst, murmur3(row[start:end], 0))
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

// lowestPermuted returns the minimum of the low 32 bits of all permuted hashes, for each of two permutations. Without
// hashes, it returns noShingle. The permutations are scaled by 8, so x = a*h + b is computed as 8x. The upper 64 bits
// of 8x are the bits of x from bit 61 on. The lower 64 bits are 8 times the other bits of x, so no bits have to be
// combined.
//
// If x = high*2^61 + low, then x mod p is high + low, minus p = 2^61-1 if the sum is at least p. Modulo 2^32,
// subtracting p is adding one. high + low >= p means that 8*low + 8*high + 8 carries out of 64 bits. The correction is
// therefore a carry, without a branch. Only bits.Add64 computes carries, because the compiler translates it to ADC.
func lowestPermuted(hashes []uint32, p, q permutation) (first, second uint32) {
	first, second = noShingle, noShingle
	for _, hash := range hashes {
		high, low8 := bits.Mul64(p.a, uint64(hash))
		low8, carry := bits.Add64(low8, p.b, 0)
		high, _ = bits.Add64(high, 0, carry)
		low := low8 >> 3
		_, carry = bits.Add64(low8, high<<3+8, 0)
		sum, _ := bits.Add64(high, low, carry)
		first = min(first, uint32(sum))

		high, low8 = bits.Mul64(q.a, uint64(hash))
		low8, carry = bits.Add64(low8, q.b, 0)
		high, _ = bits.Add64(high, 0, carry)
		low = low8 >> 3
		_, carry = bits.Add64(low8, high<<3+8, 0)
		sum, _ = bits.Add64(high, low, carry)
		second = min(second, uint32(sum))
	}
	return first, second
}

// mergeSignature sets each entry of record to the minimum of the entries of record and other.
func mergeSignature(record, other []byte) {
	for i := 0; i < len(record); i += 4 {
		lower := min(binary.LittleEndian.Uint32(record[i:]), binary.LittleEndian.Uint32(other[i:]))
		binary.LittleEndian.PutUint32(record[i:], lower)
	}
}

// asUint32 returns the same memory as numbers in native byte order. Only this kernel reads these numbers, so any byte
// order is fine.
func asUint32(memory []byte) ([]uint32, error) {
	if len(memory) == 0 {
		return nil, nil
	}
	start := unsafe.Pointer(unsafe.SliceData(memory))
	if uintptr(start)%unsafe.Alignof(uint32(0)) != 0 {
		return nil, device.Errorf("run minhash", "", device.ErrInvalid, "scratch is not aligned: give memory aligned to 8 bytes")
	}
	return unsafe.Slice((*uint32)(start), len(memory)/4), nil
}
