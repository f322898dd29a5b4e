package neardup

import (
	"encoding/binary"
	"strconv"
)

// The value of a record in results begins with ValueBytes bytes. Numbers are unsigned and little-endian.
//
//	 0  uint64  sequence of DuplicateOf; 0 if the record has no hits
//	 8  uint64  record of DuplicateOf
//	16  uint32  Bands
//	20  uint32  number of bytes that follow for Also
//
// Each position of Also follows with PositionBytes bytes: its sequence and its record, as uint64.
const (
	ValueBytes    = 24
	PositionBytes = 16
)

// KeyBytes is the size of a key. Keys pass between devices and this package as little-endian bytes.
const KeyBytes = 8

// The positions of the fields in a value.
const (
	bandsAt     = 16
	alsoBytesAt = 20
)

// AppendValue appends the verdict as the value of a record in results.
func (v Verdict) AppendValue(dst []byte) []byte {
	dst = appendPosition(dst, v.DuplicateOf)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(v.Bands))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(PositionBytes*len(v.Also)))
	for _, p := range v.Also {
		dst = appendPosition(dst, p)
	}
	return dst
}

// ReadValue returns the verdict in a value. ok is true if AppendValue writes this value for a verdict with at most MaxBands hits.
func ReadValue(value []byte) (v Verdict, ok bool) {
	if len(value) < ValueBytes {
		return Verdict{}, false
	}
	v.DuplicateOf = readPosition(value)
	bands, alsoBytes := binary.LittleEndian.Uint32(value[bandsAt:]), binary.LittleEndian.Uint32(value[alsoBytesAt:])
	rest := value[ValueBytes:]
	if bands > MaxBands || alsoBytes%PositionBytes != 0 || uint64(alsoBytes) != uint64(len(rest)) {
		return Verdict{}, false
	}
	v.Bands = int(bands)
	least := v.DuplicateOf
	for ; len(rest) > 0; rest = rest[PositionBytes:] {
		p := readPosition(rest)
		if p.Compare(least) <= 0 {
			return Verdict{}, false
		}
		v.Also, least = append(v.Also, p), p
	}
	if v.Bands == 0 {
		return v, v.DuplicateOf == Position{} && v.Also == nil
	}
	return v, v.DuplicateOf.Sequence > 0 && len(v.Also) < v.Bands
}

// maxPositionJSON is the maximum number of bytes of a position in JSON, with the comma before it. A number has at most 20 digits.
const maxPositionJSON = len(`,{"sequence":,"record":}`) + 2*20

// MaxJSON returns the maximum number of bytes that AppendJSON appends for a verdict with at most the given number of hits.
func MaxJSON(hits int) int {
	return len(`{"duplicate_of":,"bands":,"also":[]}`) + len("64") + hits*maxPositionJSON
}

// AppendJSON appends a value that AppendValue has written as JSON: {"duplicate_of":null}, or
// {"duplicate_of":{"sequence":17,"record":3},"bands":12,"also":[{"sequence":18,"record":0}]}. It allocates only to grow dst.
func AppendJSON(dst, value []byte) []byte {
	document, bands, also := readPosition(value), binary.LittleEndian.Uint32(value[bandsAt:]), value[ValueBytes:]
	if bands == 0 {
		return append(dst, `{"duplicate_of":null}`...)
	}
	dst = append(dst, `{"duplicate_of":`...)
	dst = appendPositionJSON(dst, document)
	dst = append(dst, `,"bands":`...)
	dst = strconv.AppendUint(dst, uint64(bands), 10)
	dst = append(dst, `,"also":[`...)
	for i := 0; i < len(also); i += PositionBytes {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendPositionJSON(dst, readPosition(also[i:]))
	}
	return append(dst, "]}"...)
}

func appendPosition(dst []byte, p Position) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, p.Sequence)
	return binary.LittleEndian.AppendUint64(dst, p.Record)
}

func appendPositionJSON(dst []byte, p Position) []byte {
	dst = append(dst, `{"sequence":`...)
	dst = strconv.AppendUint(dst, p.Sequence, 10)
	dst = append(dst, `,"record":`...)
	dst = strconv.AppendUint(dst, p.Record, 10)
	return append(dst, '}')
}

func readPosition(data []byte) Position {
	return Position{Sequence: binary.LittleEndian.Uint64(data), Record: binary.LittleEndian.Uint64(data[8:])}
}
