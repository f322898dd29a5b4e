package operator

import (
	"encoding/binary"
	"hash/crc32"

	"millrace/internal/device"
)

// crc32cName is the name of the operator crc32c: the CRC-32C of the payload as defined in RFC 3720. The initial value is all ones, and the
// result is complemented. The checksum of an empty payload is 0.
const crc32cName = "crc32c"

// castagnoli is the bit-reversed polynomial of CRC-32C (RFC 3720, section 12.1): bit 31 is the coefficient of x^0, and x^32 is omitted.
const castagnoli = 0x82F63B78

// crc32cReference appends the checksum of payload. It divides bit by bit, as in the definition.
func crc32cReference(dst, payload []byte) []byte {
	remainder := ^uint32(0)
	for _, b := range payload {
		remainder ^= uint32(b)
		for range 8 {
			carry := remainder & 1
			remainder = remainder>>1 ^ castagnoli*carry
		}
	}
	return binary.LittleEndian.AppendUint32(dst, ^remainder)
}

const crc32cStride = 4

// crc32cPieceUnits is the size of a piece in the units of batch. One core processes a piece in some microseconds, which is much longer
// than it takes to distribute the piece.
const crc32cPieceUnits = 64 << 10

var castagnoliTable = crc32.MakeTable(crc32.Castagnoli)

// crc32cHost is the host kernel. It calls hash/crc32, which uses the processor's CRC instruction.
type crc32cHost struct{}

func (crc32cHost) Name() string { return crc32cName }

func (crc32cHost) Bind(params []byte) (device.BoundHostKernel, error) {
	if len(params) != 0 {
		return nil, device.Errorf("bind crc32c", "", device.ErrInvalid, "the parameter block has %d bytes: give none", len(params))
	}
	return crc32cKernel{crc32cPieceUnits}, nil
}

type crc32cKernel struct{ pieceUnits int }

// Needs requests scratch for one checksum per piece. The scratch holds the checksum of the piece's first part if that part continues a row
// from an earlier piece. A batch with a single piece needs no scratch.
func (c crc32cKernel) Needs(s device.Shape) device.Needs {
	n := device.Needs{Result: s.Rows * crc32cStride}
	if pieces := pieceCount(s.Rows, s.Bytes, c.pieceUnits); pieces > 1 {
		n.Scratch = pieces * crc32cStride
	}
	return n
}

func (c crc32cKernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	b, err := prepare(crc32cName, c, rows, offsets, scratch, result, c.pieceUnits)
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

// A checksum is a remainder modulo the CRC's polynomial P over GF(2). The checksum of two concatenated byte strings is therefore the first
// checksum times x^(8n), plus the second checksum. n is the length of the second byte string. The complements at both ends cancel out.
// zlib's crc32_combine uses the same property.

// crc32cConcat returns the CRC-32C of two concatenated byte strings with the checksums first and second. n is the length of the second
// byte string, below 2^32.
func crc32cConcat(first, second uint32, n int) uint32 {
	for bit := 0; n != 0; bit++ {
		if n&1 != 0 {
			first = timesModP(first, powersOfX[bit])
		}
		n >>= 1
	}
	return first ^ second
}

// powersOfX[i] is x^(8 * 2^i) mod P: the factor for appending 2^i bytes.
var powersOfX = func() (powers [32]uint32) {
	powers[0] = 1 << (31 - 8) // x^8: bit 31 is the coefficient of x^0
	for i := 1; i < len(powers); i++ {
		powers[i] = timesModP(powers[i-1], powers[i-1])
	}
	return powers
}()

// timesModP returns the product of a and b modulo P, in the bit order of castagnoli.
func timesModP(a, b uint32) uint32 {
	var product uint32
	for bit := uint32(1) << 31; bit != 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
		}
		b = b>>1 ^ castagnoli&-(b&1) // b times x
	}
	return product
}
