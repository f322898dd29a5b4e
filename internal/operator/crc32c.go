package operator

import "encoding/binary"

// crc32cName is the name of the operator crc32c: the CRC-32C of the payload as defined in RFC 3720. The initial value is all ones, and the
// result is complemented. For the empty payload it is 0.
const crc32cName = "crc32c"

// castagnoli is the bit-reversed polynomial of CRC-32C (RFC 3720, section 12.1): bit 31 is the coefficient of x^0, and
// x^32 is omitted.
const castagnoli = 0x82F63B78

// crc32cReference divides bit by bit, following the definition.
func crc32cReference(dst, payload []byte) []byte {
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
