package client

import "encoding/binary"

// Neardup is the value of the operator neardup. It reports whether a near-duplicate came before the record.
type Neardup struct {
	DuplicateOf *Position  `json:"duplicate_of"` // an earlier record of the group; nil if the record isn't a near-duplicate
	Bands       int        `json:"bands"`        // number of bands that the record shares with earlier records
	Also        []Position `json:"also"`         // earlier records of other groups, which the record joins with the group of DuplicateOf
}

// Position identifies a record of the input stream.
type Position struct {
	Sequence uint64 `json:"sequence"` // sequence of the message in the stream, from 1
	Record   uint64 `json:"record"`   // number of the record in the message, from 0
}

// These constants are the sizes of a value of neardup without Also, and of a position.
const (
	neardupBytes  = 24
	positionBytes = 16
)

// Neardup returns the value of the operator with the given index, which must be neardup. It returns false if the record's status isn't OK,
// or if the operator's values have another format.
func (r Record) Neardup(operator int) (value Neardup, ok bool) {
	fixed, also := r.Value(operator), r.Strings(operator)
	if len(fixed) != neardupBytes || len(also)%positionBytes != 0 || !r.result.Operators[operator].ByteStrings {
		return Neardup{}, false
	}
	if p := positionOf(fixed); p.Sequence > 0 {
		value.DuplicateOf = &p
	}
	value.Bands = int(binary.LittleEndian.Uint32(fixed[positionBytes:]))
	for ; len(also) > 0; also = also[positionBytes:] {
		value.Also = append(value.Also, positionOf(also))
	}
	return value, true
}

func positionOf(value []byte) Position {
	return Position{Sequence: binary.LittleEndian.Uint64(value), Record: binary.LittleEndian.Uint64(value[8:])}
}
