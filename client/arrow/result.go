package arrow

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"millrace/client"
)

// The columns that every result has, and the key of a field's metadata under which an operator's column has its spec.
const (
	bytesColumn  = "bytes"
	statusColumn = "status"
	specKey      = "operator"
)

// Result is a decoded result, one row per record.
type Result struct {
	Bytes    []uint64 // the records' lengths
	Statuses []string // ok, or why a record has no values: the names of the constants of package client
	Columns  []Column // one per operator, or per field of an operator whose values are structs
	Texts    []Texts  // those of Columns whose values are byte strings
}

// Column has the values of one operator, or of one field of an operator whose values are structs.
type Column struct {
	Name  string // name of the operator
	Field string // name of the field; empty if the operator's values aren't structs
	Spec  string // the operator with all parameters; empty if the result doesn't tell
	Type  arrow.DataType

	values []byte // of all records back to back
	width  int    // bytes of a value; variable for byte strings
	ends   []int  // of each record's byte string in values
	valid  []bool

	column int // where the column is in the schema
	field  int // of a struct, or whole
}

const (
	// whole marks a column that isn't a field of a struct.
	whole = -1

	// variable is the width of byte strings.
	variable = -1
)

// Texts is a Column whose values are byte strings.
type Texts Column

// Bytes returns the value of record i, a slice of the result: a byte string, or little-endian numbers. It is nil if the record has no
// value. See Numbers for numbers.
func (c *Column) Bytes(i int) []byte {
	switch {
	case !c.valid[i]:
		return nil
	case c.width != variable:
		return c.values[i*c.width:][:c.width:c.width]
	}
	start := 0
	if i > 0 {
		start = c.ends[i-1]
	}
	return c.values[start:c.ends[i]:c.ends[i]]
}

// Value returns the value of record i, a slice of the result: one number for crc32c, and the signature for minhash. It is nil if the
// record has none, or if the column's numbers aren't uint32.
func (c *Column) Value(i int) []uint32 { return Numbers[uint32](c, i) }

// Value returns the byte string of record i, a slice of the result. It is nil if the record has none.
func (t *Texts) Value(i int) []byte { return (*Column)(t).Bytes(i) }

// Numbers returns the number or the list of numbers that is the value of record i, a slice of the result. It is nil if the record has no
// value, or if the column's numbers aren't of type T.
func Numbers[T arrow.NumericType](c *Column, i int) []T {
	if !c.valid[i] || c.element().ID() != arrow.GetDataType[T]().ID() {
		return nil
	}
	return arrow.GetData[T](c.Bytes(i))
}

// element returns the type of a value, or of a list's elements.
func (c *Column) element() arrow.DataType {
	if list, ok := c.Type.(*arrow.FixedSizeListType); ok {
		return list.Elem()
	}
	return c.Type
}

// Len returns the number of records.
func (r *Result) Len() int { return len(r.Bytes) }

// OK reports whether record i was processed.
func (r *Result) OK(i int) bool { return r.Statuses[i] == client.OK.String() }

// Column returns the column of the operator with this name or this spec, or of the field with this name, such as "entropy.peak". Of an
// operator with several fields it returns the first of type uint32, or else the first. It returns nil if there is none.
func (r *Result) Column(name string) (found *Column) {
	for i := range r.Columns {
		if c := &r.Columns[i]; !c.is(name) {
			continue
		} else if c.element().ID() == arrow.UINT32 {
			return c
		} else if found == nil {
			found = c
		}
	}
	return found
}

// ByteStrings returns the byte strings of the operator with this name or this spec, or of the field with this name, such as "echo.text".
// It returns nil if there are none.
func (r *Result) ByteStrings(name string) *Texts {
	for i := range r.Texts {
		if t := &r.Texts[i]; (*Column)(t).is(name) {
			return t
		}
	}
	return nil
}

// is reports whether the column has a name: that of its operator or of its field, or a spec.
func (c *Column) is(name string) bool {
	return c.Name == name || c.Spec == name || c.Field != "" && c.Name+"."+c.Field == name
}

// Decode decodes an Arrow result. It copies what it returns out of body. Whatever the body claims, Decode allocates little more than a
// few times its length.
func Decode(body []byte) (result *Result, err error) {
	defer func() {
		if fault := recover(); fault != nil { // the library panics on some invalid streams
			result, err = nil, fmt.Errorf("arrow result: %v", fault)
		}
	}()
	if len(body) == 0 {
		return nil, errors.New("arrow result: empty: even a result without records has a schema")
	}
	if err := verify(body); err != nil {
		return nil, fmt.Errorf("arrow result: %w", err)
	}
	limit := int64(len(body))
	mem := &budget{left: 4*len(body) + 64<<10}
	messages := ipc.NewMessageReader(bytes.NewReader(body), ipc.WithAllocator(mem), ipc.WithBodySizeLimit(limit), ipc.WithMetadataSizeLimit(limit))
	reader, err := ipc.NewReaderFromMessageReader(messages, ipc.WithAllocator(mem))
	if err != nil {
		return nil, fmt.Errorf("arrow result: %w", err)
	}
	defer reader.Release()
	result, err = newResult(reader.Schema())
	for err == nil && reader.Next() {
		err = result.append(reader.RecordBatch())
	}
	if err = errors.Join(err, reader.Err()); err != nil {
		return nil, fmt.Errorf("arrow result, record %d: %w", result.Len(), err)
	}
	for _, c := range result.Columns {
		if c.width == variable {
			result.Texts = append(result.Texts, Texts(c))
		}
	}
	return result, nil
}

// newResult returns a result without records.
func newResult(schema *arrow.Schema) (*Result, error) {
	r := new(Result)
	for i, field := range schema.Fields() {
		if i < 2 {
			if want := []string{bytesColumn, statusColumn}[i]; field.Name != want {
				return r, fmt.Errorf("column %d is %q, not %q: not a result", i+1, field.Name, want)
			}
			continue
		}
		c := Column{Name: field.Name, Type: field.Type, values: []byte{}, column: i, field: whole}
		c.Spec, _ = field.Metadata.GetValue(specKey)
		fields := []Column{c}
		if t, ok := field.Type.(*arrow.StructType); ok {
			fields = nil
			for j, f := range t.Fields() {
				c.Field, c.Type, c.field = f.Name, f.Type, j
				fields = append(fields, c)
			}
		}
		for _, c := range fields {
			if err := c.measure(); err != nil {
				return r, err
			}
			r.Columns = append(r.Columns, c)
		}
	}
	if schema.NumFields() < 2 {
		return r, fmt.Errorf("%d columns: a result begins with %s and %s", schema.NumFields(), bytesColumn, statusColumn)
	}
	return r, nil
}

// measure sets the width of the column's values.
func (c *Column) measure() error {
	n := 1
	if list, ok := c.Type.(*arrow.FixedSizeListType); ok {
		n = int(list.Len())
	}
	switch t := c.element().(type) {
	case arrow.FixedWidthDataType:
		c.width = n * t.Bytes()
		return nil
	case *arrow.BinaryType, *arrow.StringType:
		if c.width = variable; c.element() == c.Type {
			return nil
		}
	}
	return fmt.Errorf("column %q is %v: a result has none of it", c.Name, c.Type)
}

// append appends the rows of a batch. It checks every column's length against that of the first, whose numbers are in memory.
func (r *Result) append(batch arrow.RecordBatch) error {
	lengths, ok := batch.Column(0).(*array.Uint64)
	if !ok {
		return fmt.Errorf("column %q is %v, not uint64", bytesColumn, batch.Column(0).DataType())
	}
	rows := len(lengths.Uint64Values())
	statuses, ok := batch.Column(1).(*array.String)
	if !ok || statuses.Len() != rows {
		return fmt.Errorf("column %q is %v of %d rows, not string of %d", statusColumn, batch.Column(1).DataType(), batch.Column(1).Len(), rows)
	}
	r.Bytes = append(r.Bytes, lengths.Uint64Values()...)
	for i := range rows {
		status := statuses.Value(i)
		if n := len(r.Statuses); n > 0 && r.Statuses[n-1] == status {
			status = r.Statuses[n-1] // most records have the status of the one before
		} else {
			status = strings.Clone(status)
		}
		r.Statuses = append(r.Statuses, status)
	}
	for k := range r.Columns {
		if err := r.Columns[k].append(batch, rows); err != nil {
			return err
		}
	}
	return nil
}

// append appends the rows of a batch. A row of a struct is null as a whole.
func (c *Column) append(batch arrow.RecordBatch, rows int) error {
	data := batch.Column(c.column)
	values := data
	if s, ok := data.(*array.Struct); ok {
		values = s.Field(c.field)
	}
	if data.Len() != rows || values.Len() != rows {
		return fmt.Errorf("column %q has %d rows of %d values, not %d", c.Name, data.Len(), values.Len(), rows)
	}
	if rows == 0 {
		return nil
	}
	first := len(c.valid)
	for i := range rows {
		c.valid = append(c.valid, data.IsValid(i) && values.IsValid(i))
	}
	if list, ok := values.(*array.FixedSizeList); ok {
		values = list.ListValues()
	}
	buffers := values.Data().Buffers()
	if c.width == variable {
		return c.appendStrings(buffers[1].Bytes(), buffers[2], c.valid[first:])
	}
	n := rows * c.width
	if n > 0 && (buffers[1] == nil || n > buffers[1].Len()) || n < 0 {
		return fmt.Errorf("column %q has fewer than %d bytes of values", c.Name, n)
	}
	if n > 0 {
		c.values = append(c.values, buffers[1].Bytes()[:n]...)
	}
	return nil
}

// appendStrings appends the byte strings of valid rows. It panics if their positions don't lie in text.
func (c *Column) appendStrings(positions []byte, text *memory.Buffer, valid []bool) error {
	from := arrow.GetData[int32](positions)[:len(valid)+1]
	for i, ok := range valid {
		if from[i] > from[i+1] {
			return fmt.Errorf("column %q: the positions of its byte strings descend", c.Name)
		}
		if ok && from[i] < from[i+1] {
			if int(from[i+1]) > text.Len() {
				return fmt.Errorf("column %q: its byte strings are truncated", c.Name)
			}
			c.values = append(c.values, text.Bytes()[from[i]:from[i+1]]...)
		}
		c.ends = append(c.ends, len(c.values))
	}
	return nil
}

// budget is an allocator that panics when it has allocated more than it may. Decode turns that into an error.
type budget struct {
	memory.GoAllocator
	left int
}

func (b *budget) Allocate(size int) []byte {
	if b.left -= size; b.left < 0 {
		panic("it would take too much memory")
	}
	return b.GoAllocator.Allocate(size)
}

func (b *budget) Reallocate(size int, old []byte) []byte {
	if b.left -= max(size-len(old), 0); b.left < 0 {
		panic("it would take too much memory")
	}
	return b.GoAllocator.Reallocate(size, old)
}
