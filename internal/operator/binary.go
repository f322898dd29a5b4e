package operator

import "encoding/binary"

// This file writes version 1 of the binary format, which client.Decode reads. Numbers are unsigned and little-endian. Every
// field starts at a multiple of 4 bytes.
const (
	binaryMagic       = "MILL"
	binaryVersion     = 1
	binaryHeaderBytes = 16 // magic, uint16 version, uint16 results, uint64 payload bytes
	resultHeaderBytes = 8  // uint32 spec bytes, uint32 record bytes; then the spec and the record, each padded
	binaryAlignment   = 4
)

func appendBinary(dst []byte, ops []Operator, payloadBytes int, records [][]byte) []byte {
	dst = append(dst, binaryMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, binaryVersion)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(ops)))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(payloadBytes))
	for i, op := range ops {
		spec, length, record, strings := op.String(), uint32(op.Stride()), records[i], []byte(nil)
		_, variable := op.(Variable)
		if variable {
			length |= StringsFollow
			record, strings = record[:op.Stride()], record[op.Stride():]
		}
		record = fixed(record, op.Stride())
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(spec)))
		dst = binary.LittleEndian.AppendUint32(dst, length)
		dst = append(dst, spec...)
		dst = appendPadding(dst, len(spec))
		dst = append(dst, record...)
		dst = appendPadding(dst, len(record))
		if variable {
			dst = appendStrings(dst, strings)
		}
	}
	return dst
}

// padding returns the number of zero bytes that follow a field of n bytes.
func padding(n int) int { return -n & (binaryAlignment - 1) }

func appendPadding(dst []byte, n int) []byte {
	return append(dst, "\x00\x00\x00"[:padding(n)]...)
}
