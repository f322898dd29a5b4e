package operator

import (
	"encoding/binary"
	"unsafe"

	"millrace/internal/device"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/simd"
)

// minhashPieceUnits is the size of a piece in the units of batch. The hashes of a piece's shingles (4 bytes each) fit
// in a core's L1 cache while every permutation iterates over them.
const minhashPieceUnits = 4 << 10

// minhashVariants are the implementations of the host kernel's inner loop that this processor supports. The fastest is first, and the last
// is pure Go.
var minhashVariants = append(simd.Minhashes(), simd.Minhash{Name: "Go", Sign: signMinhash})

// minhashHost is the host kernel.
type minhashHost struct{ description *compiled.Description }

func (minhashHost) Name() string { return minhashName }

func (m minhashHost) Bind(params []byte) (device.BoundHostKernel, error) {
	p, err := minhashParametersOf(m.description, params)
	if err != nil {
		return nil, device.Errorf("bind minhash", "", device.ErrInvalid, "%v", err)
	}
	return minhashKernel{minhashParameters: p, sign: minhashVariants[0].Sign, pieceUnits: minhashPieceUnits}, nil
}

// minhashKernel is the kernel with its parameters.
type minhashKernel struct {
	*minhashParameters
	sign       simd.SignFunc
	pieceUnits int
}

// stride returns the length of a signature in bytes.
func (m minhashKernel) stride() int { return 4 * len(m.a) }

// Needs requests scratch for one hash per byte, because at most one shingle starts at each byte. It also requests scratch for one signature
// per piece. This scratch holds the signature of the piece's first part if that part continues a row from an earlier piece.
func (m minhashKernel) Needs(s device.Shape) device.Needs {
	n := device.Needs{Scratch: 4 * s.Bytes, Result: s.Rows * m.stride()}
	if pieces := pieceCount(s.Rows, s.Bytes, m.pieceUnits); pieces > 1 {
		n.Scratch += pieces * m.stride()
	}
	return n
}

func (m minhashKernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	b, err := prepare(minhashName, m, rows, offsets, scratch, result, m.pieceUnits)
	if err != nil {
		return err
	}
	var (
		stride    = m.stride()
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
			m.signPart(record, b, p, hashes)
		}
	})
	for piece := range b.pieces() {
		if p, ok := b.first(piece); ok && !p.begins {
			mergeSignature(result[p.row*stride:][:stride], aside[piece*stride:])
		}
	}
	return nil
}

// signPart writes the signature of the shingles that start in part p to record. It stores their hashes in the scratch
// memory for the part's bytes. An empty row has a signature of zeros.
func (m minhashKernel) signPart(record []byte, b batch, p part, hashes []uint32) {
	var (
		start = int(b.offsets[p.row])
		row   = b.rows[start:b.offsets[p.row+1]]
		base  = int(b.offsets[0])
	)
	if len(row) == 0 {
		clear(record)
		return
	}
	m.sign(record, row, p.low-start, p.high-start, m.k, m.a, m.b, hashes[p.low-base:p.high-base])
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
