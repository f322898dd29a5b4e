// Package arrowipc writes results as Arrow IPC streams. A stream has one row per record. The columns are the record's length in
// bytes, its status, and the value of each operator.
//
// Package operator uses it for the result of a single record, and internal/table for the records of a frame. The package doesn't
// depend on operators, because its callers describe each column. Start reading with this file, then encode.go.
//
// The values of columns and the streams are little-endian.
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

// These constants are the kinds of columns.
const (
	Bytes  Kind = iota // fixed_size_binary[Width]
	Single             // the type of the only field
	Struct             // a struct of the fields
)

// Column describes the values of one operator.
type Column struct {
	Name  string
	Spec  string // operator with its parameters, stored in the field's metadata under specKey
	Kind  Kind
	Width int // bytes of one record

	Fields []Field // fields of Single and Struct, in order
}

// These constants are the names and the number of the columns at the start of every stream.
const (
	bytesColumn  = "bytes"
	statusColumn = "status"
	fixedColumns = 2

	keptPrefix = "fields." // prefix of the columns of kept fields, which come last
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

// newSchema returns the schema of a stream with the given columns and kept fields. The value of an operator is null if the
// record's status isn't OK. A kept field is null if the record doesn't have it. All other values are never null.
func newSchema(columns []Column, kept []string) *arrow.Schema {
	fields := []arrow.Field{
		{Name: bytesColumn, Type: arrow.PrimitiveTypes.Uint64},
		{Name: statusColumn, Type: arrow.BinaryTypes.String},
	}
	for _, c := range columns {
		fields = append(fields, arrow.Field{
			Name: c.Name, Type: c.dataType(), Nullable: true, Metadata: arrow.NewMetadata([]string{specKey}, []string{c.Spec}),
		})
	}
	for _, name := range kept {
		fields = append(fields, arrow.Field{Name: keptPrefix + name, Type: arrow.BinaryTypes.String, Nullable: true})
	}
	return arrow.NewSchema(fields, nil)
}

// These constants are the maximum lengths of parts of a stream in bytes.
const (
	maxDescription = 416 // messages of a stream without columns
	maxField       = 272 // description of one column, without its texts
	longestStatus  = len("operator_error")
)

// MaxBytes returns the maximum number of bytes that Encoder.Append appends for the given number of rows. stringBytes is the
// total length of the byte strings.
func MaxBytes(columns []Column, rows, stringBytes int) int {
	limit := maxDescription + padded(8*rows, 8) + padded(4*(rows+1), 8) + padded(longestStatus*rows, 8) + stringBytes
	for _, c := range columns {
		limit += maxField + len(c.Name) + len(c.Spec) + padded((rows+7)/8, 64)
		if c.Fields == nil {
			limit += padded(c.Width*rows, 8)
		} else {
			limit += c.maxFields(rows)
		}
	}
	return limit
}

// padded rounds n up to a multiple of alignment, a power of two. arrow-go pads bitmaps to 64 bytes and everything else to 8.
func padded(n, alignment int) int { return (n + alignment - 1) &^ (alignment - 1) }

// Type is the type of a field's elements.
type Type uint8

// These constants are the types of elements.
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
	BinaryType // a byte string; the record contains its length as a uint32

	PositionType  // position of a record: the sequence of its message and its number in the message, two uint64; null if the sequence is 0
	PositionsType // list of positions; the record contains the length of their bytes as a uint32
)

var types = [...]struct {
	arrow arrow.DataType
	bytes int // size of an element in a record
}{
	Uint8Type: {arrow.PrimitiveTypes.Uint8, 1}, Uint16Type: {arrow.PrimitiveTypes.Uint16, 2},
	Uint32Type: {arrow.PrimitiveTypes.Uint32, 4}, Uint64Type: {arrow.PrimitiveTypes.Uint64, 8},
	Int8Type: {arrow.PrimitiveTypes.Int8, 1}, Int16Type: {arrow.PrimitiveTypes.Int16, 2},
	Int32Type: {arrow.PrimitiveTypes.Int32, 4}, Int64Type: {arrow.PrimitiveTypes.Int64, 8},
	Float32Type: {arrow.PrimitiveTypes.Float32, 4}, Float64Type: {arrow.PrimitiveTypes.Float64, 8},
	BinaryType:   {arrow.BinaryTypes.Binary, 4},
	PositionType: {position, positionBytes}, PositionsType: {arrow.ListOfNonNullable(position), 4},
}

// Field is a field of an operator's records.
type Field struct {
	Name  string
	Type  Type
	Count int // number of elements of a list; 0 if the field isn't a list
	At    int // position in the record
}

// bytes returns the length of the field in a record.
func (f Field) bytes() int { return types[f.Type].bytes * max(f.Count, 1) }

// dataType returns the Arrow type of the field. It panics if the field doesn't fit into a record of width bytes.
func (f Field) dataType(width int) arrow.DataType {
	if int(f.Type) >= len(types) || f.Count < 0 || f.At < 0 || f.At+f.bytes() > width || f.Type >= BinaryType && f.Count != 0 {
		panic(fmt.Sprintf("arrowipc: field %q of type %d with %d elements at byte %d of %d", f.Name, f.Type, f.Count, f.At, width))
	}
	if f.Count > 0 {
		return arrow.FixedSizeListOfNonNullable(int32(f.Count), types[f.Type].arrow)
	}
	return types[f.Type].arrow
}

// structType returns the type of a column that is a struct. A record's struct can be null. Among its fields, only a PositionType can be
// null.
func (c Column) structType() arrow.DataType {
	fields := make([]arrow.Field, 0, len(c.Fields))
	for _, f := range c.Fields {
		fields = append(fields, arrow.Field{Name: f.Name, Type: f.dataType(c.Width), Nullable: f.Type == PositionType})
	}
	return arrow.StructOf(fields...)
}

// Types returns the names of the Arrow types of the column's values. For a struct, Types returns one string for each field: the field's
// name, a space, and the type.
func (c Column) Types() (names []string) {
	if c.Kind != Struct {
		return []string{c.dataType().String()}
	}
	for _, f := range c.Fields {
		names = append(names, f.Name+" "+f.dataType(c.Width).String())
	}
	return names
}

// Join returns the value of one record in the operator's format, which is the record with its fields, followed by its byte strings. values
// has one Arrow value for each of Types. Join returns false if a value doesn't have the length of its field.
func (c Column) Join(values [][]byte) (value []byte, ok bool) {
	if c.Kind == Bytes {
		return values[0], len(values[0]) == c.Width
	}
	value = make([]byte, c.Width)
	for i, f := range c.Fields {
		switch v := values[i]; {
		case f.isVariable():
			binary.LittleEndian.PutUint32(value[f.At:], uint32(len(v)))
			value = append(value, v...)
		case f.Type == PositionType && v == nil: // null
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

// binaries returns the column's number of byte strings per record. A list of positions counts as one.
func (c Column) binaries() (n int) {
	for _, f := range c.Fields {
		if f.isVariable() {
			n++
		}
	}
	return n
}

// isVariable reports whether the field's bytes follow the record, which contains their length.
func (f Field) isVariable() bool { return f.Type == BinaryType || f.Type == PositionsType }

// isWhole reports whether the field is the column's only content. The records then serve as an Arrow buffer without a copy.
func (c Column) isWhole(f Field) bool { return f.Type < BinaryType && f.bytes() == c.Width }

// maxFields returns the maximum number of bytes of the column's fields in a stream with the given number of rows.
func (c Column) maxFields(rows int) (limit int) {
	for _, f := range c.Fields {
		limit += f.maxValues(rows)
		if c.Kind == Single {
			continue // the field has no description of its own
		}
		limit += maxField + len(f.Name)
		switch {
		case f.Count > 0:
			limit += maxField // description of the list's element
		case f.Type == PositionType, f.Type == PositionsType:
			limit += 3 * maxField // descriptions of an element and of its fields
		}
	}
	return limit
}

// maxGathered returns the maximum number of bytes of memory for the gathered values of the given number of rows, without byte strings.
func (c Column) maxGathered(rows int) (limit int) {
	for _, f := range c.Fields {
		if !c.isWhole(f) {
			limit += maxField + f.maxValues(rows)
		}
		if f.Type == PositionType {
			limit += f.maxValues(rows) // the positions are in memory twice
		}
	}
	return limit
}

// maxValues returns the maximum number of bytes of the field's values in a stream with the given number of rows, without byte strings.
func (f Field) maxValues(rows int) int {
	switch f.Type {
	case BinaryType:
		return padded(4*(rows+1), 8) + 8 // the bytes themselves are padded too
	case PositionType:
		return padded(bitmap(rows), 64) + 2*padded(8*rows, 8)
	case PositionsType:
		return padded(4*(rows+1), 8) + 2*8 // the sequences and the numbers are padded
	}
	return padded(f.bytes()*rows, 8)
}

// maxStrings is the maximum length of the byte strings in one column of a batch.
const maxStrings = math.MaxInt32
