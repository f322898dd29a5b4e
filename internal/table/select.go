package table

import (
	"encoding/binary"

	"millrace/internal/arrowipc"
)

// A selection is a table with some records of another table. Its bodies contain each record's number in the message.

// Select returns a selection of t with the given records. records has increasing indices. The selection is valid until the next call of
// Select or Reset.
func (t *Table) Select(records []uint32) *Table {
	if t.selection == nil {
		t.selection = new(Table)
	}
	s := t.selection
	s.reset(t.ops, len(records)) // without keys
	s.numbers = append(s.numbers[:0], records...)
	s.isSelection = true
	s.Keep(t.fields.names, t.fields.of)
	s.fields.numbers, s.annotation = s.numbers, t.annotation
	for at, i := range records {
		s.lengths[at], s.statuses[at] = t.lengths[i], t.statuses[i]
		for op := range t.ops {
			copy(s.result(op, at), t.result(op, int(i)))
			if spans := t.strings.spans[op]; spans != nil {
				s.strings.spans[op][at] = spans[i]
			}
		}
	}
	s.strings.bytes = t.strings.bytes // the selection uses the same bytes with other spans
	return s
}

// numberColumn is the column of the records' numbers in an Arrow stream.
var numberColumn = arrowipc.Column{
	Name: "record", Kind: arrowipc.Single, Width: 4, Fields: []arrowipc.Field{{Name: "record", Type: arrowipc.Uint32Type}},
}

// Number returns the index of record i in the message.
func (t *Table) Number(i int) int {
	if t.isSelection {
		return int(t.numbers[i])
	}
	return i
}

// appendNumbers appends the numbers of the records [from, to).
func (t *Table) appendNumbers(dst []byte, from, to int) []byte {
	for _, number := range t.numbers[from:to] {
		dst = binary.LittleEndian.AppendUint32(dst, number)
	}
	return dst
}
