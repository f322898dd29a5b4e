package operator

import (
	"encoding/binary"
	"encoding/hex"

	"millrace/internal/device"
)

const crc32cName = "crc32c"

// castagnoli is the bit-reversed polynomial of CRC-32C (RFC 3720, section 12.1): bit 31 is the coefficient of x^0, and
// x^32 is omitted.
const castagnoli = 0x82F63B78

// crc32c is the CRC-32C of the payload as defined in RFC 3720: the initial value is all ones, and the result is
// complemented. For the empty payload it is 0.
type crc32c struct{}

func (crc32c) Name() string   { return crc32cName }
func (crc32c) String() string { return crc32cName }
func (crc32c) Params() []byte { return []byte{} }
func (crc32c) Stride() int    { return crc32cStride }

func (crc32c) Needs(s device.Shape) device.Needs { return crc32cKernel{crc32cPieceUnits}.Needs(s) }

// AppendJSON appends the checksum as eight lower-case hex digits, most significant first, in quotes.
func (crc32c) AppendJSON(dst, record []byte) []byte {
	var bigEndian [crc32cStride]byte
	binary.BigEndian.PutUint32(bigEndian[:], binary.LittleEndian.Uint32(fixed(record, crc32cStride)))
	dst = append(dst, '"')
	dst = hex.AppendEncode(dst, bigEndian[:])
	return append(dst, '"')
}

// MostJSON returns the length of every checksum in JSON: eight digits in quotes.
func (crc32c) MostJSON() int { return len(`"e3069283"`) }

// AppendReference divides bit by bit, following the definition.
func (crc32c) AppendReference(dst, payload []byte) []byte {
	remainder := ^uint32(0)
	for _, b := range payload {
		remainder ^= uint32(b)
		for range 8 {
			carry := remainder & 1
			remainder >>= 1
			if carry != 0 {
				remainder ^= castagnoli
			}
		}
	}
	return binary.LittleEndian.AppendUint32(dst, ^remainder)
}
