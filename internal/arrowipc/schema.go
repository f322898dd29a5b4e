// Package arrowipc writes and reads results as Arrow IPC streams: one row per record, with its length in bytes, its status, and one
// column per operator.
//
// Package operator uses it for the result of a single record, and internal/table for the records of a frame. The package knows no
// operators: a caller describes each column. Start reading with this file, then encode.go.
//
// The values of columns are little-endian, as operators define them, and so are the streams that it writes.
package arrowipc

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// Kind is the type of a column.
type Kind uint8

// The kinds.
const (
	Bytes  Kind = iota // fixed_size_binary[Width]
	Single             // the type of the only field
	Struct             // a struct of the fields
)

// Column describes the values of one operator.
type Column struct {
	Name  string
	Spec  string // the operator with its parameters; the field's metadata has it under the key "operator"
	Kind  Kind
	Width int // bytes of one record

	Fields []Field // of Single and Struct, in order
}

// The first two columns of every stream.
const (
	bytesColumn  = "bytes"
	statusColumn = "status"
	fixedColumns = 2
)

// specKey is the key of a field's metadata for Column.Spec.
const specKey = "operator"

// dataType returns the Arrow type of the column's values. It panics if kind and width contradict each other.
func (c Column) dataType() arrow.DataType {
	switch {
	case c.Width <= 0 || c.Width > math.MaxInt32:
	case c.Kind == Bytes:
		return &arrow.FixedSizeBinaryType{ByteWidth: c.Width}
	case c.Kind == Single && len(c.Fields) == 1:
		return c.Fields[0].dataType(c.Width)
	case c.Kind == Struct && len(c.Fields) > 0:
		return c.structType()
	}
	panic(fmt.Sprintf("arrowipc: column %q of kind %d has %d bytes", c.Name, c.Kind, c.Width))
}

// newSchema returns the schema of a stream with these columns. The value of an operator is null if the record's status isn't OK.
// Nothing else is ever null.
func newSchema(columns []Column) *arrow.Schema {
	fields := []arrow.Field{
		{Name: bytesColumn, Type: arrow.PrimitiveTypes.Uint64},
		{Name: statusColumn, Type: arrow.BinaryTypes.String},
	}
	for _, c := range columns {
		fields = append(fields, arrow.Field{
			Name: c.Name, Type: c.dataType(), Nullable: true, Metadata: arrow.NewMetadata([]string{specKey}, []string{c.Spec}),
		})
	}
	return arrow.NewSchema(fields, nil)
}

// Bounds of the parts of a stream that describe its columns, and of the longest status.
const (
	mostDescription = 416 // messages without columns
	mostField       = 272 // description of one column, without its texts
	longestStatus   = len("operator_error")
)

// Most returns the maximum number of bytes that Encoder.Append appends for that many rows, whose byte strings have that many bytes
// together.
func Most(columns []Column, rows, stringBytes int) int {
	most := mostDescription + padded(8*rows, 8) + padded(4*(rows+1), 8) + padded(longestStatus*rows, 8) + stringBytes
	for _, c := range columns {
		most += mostField + len(c.Name) + len(c.Spec) + padded((rows+7)/8, 64)
		if c.Fields == nil {
			most += padded(c.Width*rows, 8)
		} else {
			most += c.mostFields(rows)
		}
	}
	return most
}

// padded rounds n up to a multiple of alignment, a power of two. arrow-go pads bitmaps to 64 bytes and everything else to 8.
func padded(n, alignment int) int { return (n + alignment - 1) &^ (alignment - 1) }

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
