package operator

import (
	"encoding/binary"
	"hash/crc32"

	"millrace/internal/device"
)

const crc32cStride = 4

// crc32cPieceUnits is the size of a piece. It takes one core some microseconds, which outweighs the cost of
// distributing pieces.
const crc32cPieceUnits = 64 << 10

var castagnoliTable = crc32.MakeTable(crc32.Castagnoli)

// crc32cHost is the host kernel. It calls the standard library's CRC-32C, which uses the processor's CRC instruction.
type crc32cHost struct{}

func (crc32cHost) Name() string { return crc32cName }

func (crc32cHost) Bind(params []byte) (device.BoundHostKernel, error) {
	if len(params) != 0 {
		return nil, device.Errorf("bind crc32c", "", device.ErrInvalid, "the parameter block has %d bytes: give none", len(params))
	}
	return crc32cKernel{crc32cPieceUnits}, nil
}

type crc32cKernel struct{ pieceUnits int }

// Needs requests scratch for one checksum per piece: the checksum of a piece's first part, which may continue a row
// that another piece begins. A batch with a single piece needs none.
func (k crc32cKernel) Needs(s device.Shape) device.Needs {
	n := device.Needs{Result: s.Rows * crc32cStride}
	if pieces := pieceCount(s.Rows, s.Bytes, k.pieceUnits); pieces > 1 {
		n.Scratch = pieces * crc32cStride
	}
	return n
}

func (k crc32cKernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	b, err := prepare(crc32cName, k, rows, offsets, scratch, result, k.pieceUnits)
	if err != nil {
		return err
	}
	parallel(b.pieces(), func(piece int) {
		for p, ok := b.first(piece); ok; p, ok = b.next(p) {
			record := result[p.row*crc32cStride:]
			if !p.begins {
				record = scratch[piece*crc32cStride:]
			}
			binary.LittleEndian.PutUint32(record, crc32.Checksum(rows[p.low:p.high], castagnoliTable))
		}
	})
	for piece := range b.pieces() {
		p, ok := b.first(piece)
		if !ok || p.begins {
			continue
		}
		record := result[p.row*crc32cStride:]
		whole := crc32cConcat(
			binary.LittleEndian.Uint32(record),
			binary.LittleEndian.Uint32(scratch[piece*crc32cStride:]),
			p.high-p.low)
		binary.LittleEndian.PutUint32(record, whole)
	}
	return nil
}
