package arrow

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"millrace/client"
)

// positionBytes is the size of a position in Column.Bytes: the sequence of a message and the number of a record in it, as uint64.
const positionBytes = 16

// isPosition reports whether t is the type of positions of records.
func isPosition(t arrow.DataType) bool {
	s, ok := t.(*arrow.StructType)
	return ok && s.NumFields() == 2 && s.Field(0).Name == "sequence" && s.Field(1).Name == "record" &&
		s.Field(0).Type.ID() == arrow.UINT64 && s.Field(1).Type.ID() == arrow.UINT64
}

// appendPositions appends the values of rows that are positions or lists of positions.
func (c *Column) appendPositions(values arrow.Array, rows int) error {
	list, isList := values.(*array.List)
	elements := values
	if isList {
		elements = list.ListValues()
	}
	columns := elements.(*array.Struct)
	sequences, records := columns.Field(0).(*array.Uint64).Uint64Values(), columns.Field(1).(*array.Uint64).Uint64Values()
	n := min(len(sequences), len(records))
	if n != max(len(sequences), len(records)) || !isList && n != rows {
		return fmt.Errorf("column %q has %d sequences and %d records for %d rows", c.Name, len(sequences), len(records), rows)
	}
	put := func(from, to int) {
		for i := from; i < to; i++ {
			c.values = binary.LittleEndian.AppendUint64(c.values, sequences[i])
			c.values = binary.LittleEndian.AppendUint64(c.values, records[i])
		}
	}
	if !isList {
		put(0, n)
		return nil
	}
	for i, ends := 0, list.Offsets()[:rows+1]; i < rows; i++ {
		from, to := int(ends[i]), int(ends[i+1])
		if from < 0 || from > to || to > n {
			return fmt.Errorf("column %q: a list has the positions %d to %d of %d", c.Name, from, to, n)
		}
		put(from, to)
		c.ends = append(c.ends, len(c.values))
	}
	return nil
}

// Neardup returns the value of the operator neardup for record i. It returns false if the record has no value, or if the result doesn't
// have this operator.
func (r *Result) Neardup(i int) (value client.Neardup, ok bool) {
	of, bands, also := r.Column("neardup.duplicate_of"), r.Column("neardup.bands"), r.Column("neardup.also")
	if of == nil || bands == nil || also == nil || !isPosition(of.Type) || also.Type.ID() != arrow.LIST || len(bands.Value(i)) != 1 {
		return client.Neardup{}, false
	}
	if all := positions(of.Bytes(i)); len(all) > 0 {
		value.DuplicateOf = &all[0]
	}
	value.Bands, value.Also = int(bands.Value(i)[0]), positions(also.Bytes(i))
	return value, true
}

func positions(value []byte) (all []client.Position) {
	for p := range slices.Chunk(value, positionBytes) {
		all = append(all, client.Position{Sequence: binary.LittleEndian.Uint64(p), Record: binary.LittleEndian.Uint64(p[8:])})
	}
	return all
}
