package neardup

import "encoding/binary"

// A value is a verdict as bytes, little-endian: a record of RecordBytes and a position of PositionBytes for each element of Also. The record
// has duplicate_of (uint64 sequence, uint64 record; zeros if there is no hit), uint32 bands, and uint32 length of the positions in bytes.
const (
	RecordBytes   = 24
	PositionBytes = 16
)

// KeyBytes is the size of a key. Devices give and take keys as bytes, little-endian.
const KeyBytes = 8

// AppendValue appends the value of v.
func (v Verdict) AppendValue(dst []byte) []byte {
	dst = appendPosition(dst, v.DuplicateOf)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(v.Bands))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(v.Also)*PositionBytes))
	for _, p := range v.Also {
		dst = appendPosition(dst, p)
	}
	return dst
}

func appendPosition(dst []byte, p Position) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, p.Sequence), p.Record)
}

// ReadVerdict returns the verdict of a value. It allocates Also.
func ReadVerdict(value []byte) (v Verdict) {
	v.DuplicateOf, v.Bands = readPosition(value), int(binary.LittleEndian.Uint32(value[16:]))
	for also := value[RecordBytes:]; len(also) >= PositionBytes; also = also[PositionBytes:] {
		v.Also = append(v.Also, readPosition(also))
	}
	return v
}

func readPosition(b []byte) Position {
	return Position{Sequence: binary.LittleEndian.Uint64(b), Record: binary.LittleEndian.Uint64(b[8:])}
}
