package arrowipc

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// Type is the type of a field's elements.
type Type uint8

// The types.
const (
	Uint8Type Type = iota
	Uint16Type
	Uint32Type
	Uint64Type
	Int8Type
	Int16Type
	Int32Type
	Int64Type
	Float32Type
	Float64Type
	BinaryType // a byte string; the record has its length, a uint32
)

var types = [...]struct {
	arrow arrow.DataType
	bytes int // of an element in a record
}{
	Uint8Type: {arrow.PrimitiveTypes.Uint8, 1}, Uint16Type: {arrow.PrimitiveTypes.Uint16, 2},
	Uint32Type: {arrow.PrimitiveTypes.Uint32, 4}, Uint64Type: {arrow.PrimitiveTypes.Uint64, 8},
	Int8Type: {arrow.PrimitiveTypes.Int8, 1}, Int16Type: {arrow.PrimitiveTypes.Int16, 2},
	Int32Type: {arrow.PrimitiveTypes.Int32, 4}, Int64Type: {arrow.PrimitiveTypes.Int64, 8},
	Float32Type: {arrow.PrimitiveTypes.Float32, 4}, Float64Type: {arrow.PrimitiveTypes.Float64, 8},
	BinaryType: {arrow.BinaryTypes.Binary, 4},
}

// Field is a field of an operator's records.
type Field struct {
	Name  string
	Type  Type
	Count int // elements of a list; 0 if the field is no list
	At    int // position in the record
}

// bytes returns the length of the field in a record.
func (f Field) bytes() int { return types[f.Type].bytes * max(f.Count, 1) }

// dataType returns the Arrow type of the field. It panics if the field doesn't fit into a record of that many bytes.
func (f Field) dataType(width int) arrow.DataType {
	if int(f.Type) >= len(types) || f.Count < 0 || f.At < 0 || f.At+f.bytes() > width || f.Type == BinaryType && f.Count != 0 {
		panic(fmt.Sprintf("arrowipc: field %q of type %d with %d elements at byte %d of %d", f.Name, f.Type, f.Count, f.At, width))
	}
	if f.Count > 0 {
		return arrow.FixedSizeListOfNonNullable(int32(f.Count), types[f.Type].arrow)
	}
	return types[f.Type].arrow
}

// structType returns the type of a column that is a struct. Its fields are never null by themselves.
func (c Column) structType() arrow.DataType {
	fields := make([]arrow.Field, 0, len(c.Fields))
	for _, f := range c.Fields {
		fields = append(fields, arrow.Field{Name: f.Name, Type: f.dataType(c.Width)})
	}
	return arrow.StructOf(fields...)
}

// Types names the Arrow types of the column's values: one, or that of each field of a struct behind the field's name and a space.
func (c Column) Types() (names []string) {
	if c.Kind != Struct {
		return []string{c.dataType().String()}
	}
	for _, f := range c.Fields {
		names = append(names, f.Name+" "+f.dataType(c.Width).String())
	}
	return names
}

// Join returns the value of one record as the operator has it: the record with its fields, and its byte strings behind that. values has one
// Arrow value for each of Types. It returns false if the length of a value is not that of its field.
func (c Column) Join(values [][]byte) (value []byte, ok bool) {
	if c.Kind == Bytes {
		return values[0], len(values[0]) == c.Width
	}
	value = make([]byte, c.Width)
	for i, f := range c.Fields {
		switch v := values[i]; {
		case f.Type == BinaryType:
			binary.LittleEndian.PutUint32(value[f.At:], uint32(len(v)))
			value = append(value, v...)
		case len(v) != f.bytes():
			return nil, false
		default:
			copy(value[f.At:], v)
		}
	}
	return value, true
}

// Equal reports whether two columns are the same.
func (c Column) Equal(o Column) bool {
	return c.Name == o.Name && c.Spec == o.Spec && c.Kind == o.Kind && c.Width == o.Width && slices.Equal(c.Fields, o.Fields)
}

// binaries returns the number of the column's byte strings in a record.
func (c Column) binaries() (n int) {
	for _, f := range c.Fields {
		if f.Type == BinaryType {
			n++
		}
	}
	return n
}

// isWhole reports whether the records of the column consist of this field, so that they are an Arrow buffer as they are.
func (c Column) isWhole(f Field) bool { return f.Type != BinaryType && f.bytes() == c.Width }

// mostFields returns the maximum number of bytes in a stream of that many rows that belong to the column's fields.
func (c Column) mostFields(rows int) (most int) {
	for _, f := range c.Fields {
		most += f.mostValues(rows)
		if c.Kind == Single {
			continue // the column's description is that of the field
		}
		most += mostField + len(f.Name)
		if f.Count > 0 {
			most += mostField // the list's element
		}
	}
	return most
}

// mostGathered returns the maximum number of bytes of memory for the gathered values of that many rows, without byte strings.
func (c Column) mostGathered(rows int) (most int) {
	for _, f := range c.Fields {
		if !c.isWhole(f) {
			most += mostField + f.mostValues(rows)
		}
	}
	return most
}

// mostValues returns the maximum number of bytes of the field's values in a stream of that many rows, without byte strings.
func (f Field) mostValues(rows int) int {
	if f.Type == BinaryType {
		return padded(4*(rows+1), 8) + 8 // the bytes themselves are padded too
	}
	return padded(f.bytes()*rows, 8)
}

// mostStrings is the maximum length of the byte strings in one column of a batch.
const mostStrings = math.MaxInt32
