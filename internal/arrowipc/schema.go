// Package arrowipc writes and reads results as Arrow IPC streams: one row per record, with its length in bytes, its status, and one
// column per operator.
//
// Package operator uses it for the result of a single record, and internal/table for the records of a frame. The package knows no
// operators: a caller describes each column. Start reading with this file, then encode.go.
//
// The values of columns are little-endian, as operators define them, and so are the streams that it writes.
package arrowipc

import (
	"fmt"
	"math"

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
