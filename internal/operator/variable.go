package operator

import "encoding/binary"

// Variable is implemented by operators whose results have byte strings. The value of a record is its record of Stride bytes, which has the
// length of each byte string, and then the byte strings back to back. The value of any other operator is the record alone.
//
// AppendReference appends a value, and AppendJSON takes one. MostJSON counts no bytes of byte strings: each takes two more at most.
type Variable interface {
	Operator

	// MostStrings returns the bound of the byte strings of a record together: most + perByte times the length of the payload.
	MostStrings() (most, perByte int)

	// AppendStrings appends the byte strings of a row. results is what the operator's kernel left for a batch with these offsets.
	AppendStrings(dst, results []byte, offsets []uint32, row int) []byte
}

// stringJSON is the maximum number of bytes that a byte of a byte string has in JSON.
const stringJSON = 2

// StringBytes returns the maximum length of all byte strings in the results of payloads that have that many bytes together.
func StringBytes(ops []Operator, payloads, bytes int) (most int) {
	for _, op := range ops {
		if v, ok := op.(Variable); ok {
			each, perByte := v.MostStrings()
			most += each*payloads + perByte*bytes
		}
	}
	return most
}

// Value returns the value of a row of a batch with these offsets. For a Variable it is in the memory of scratch, which Value extends.
func Value(op Operator, results []byte, offsets []uint32, row int, scratch *[]byte) []byte {
	record := results[row*op.Stride():][:op.Stride()]
	v, ok := op.(Variable)
	if !ok {
		return record
	}
	start := len(*scratch)
	*scratch = v.AppendStrings(append(*scratch, record...), results, offsets, row)
	return (*scratch)[start:len(*scratch):len(*scratch)]
}

// StringsFollow is set in the length of an operator's record in a binary result if byte strings follow the records.
const StringsFollow = 1 << 31

// mostPositions is the maximum length of what a binary result of one record has besides a byte string's bytes: two positions and padding.
const mostPositions = 2*4 + binaryAlignment - 1

// appendStrings appends the byte strings of one record as a binary result has them: where each record's begin and end, and then the bytes.
func appendStrings(dst, strings []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(strings)))
	return appendPadding(append(dst, strings...), len(strings))
}
