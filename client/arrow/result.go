package arrow

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"millrace/client"
)

// The first two constants are the names of the columns that every result has. The third is the metadata key for the
// spec of an operator's column.
const (
	bytesColumn  = "bytes"
	statusColumn = "status"
	specKey      = "operator"

	// numberColumn is the name of the column that only results with a filter have. It has no spec.
	numberColumn = "record"
)

// Result is a decoded result, one row per record.
type Result struct {
	Numbers  []uint32 // index of each record in the input; nil unless the worker has a filter
	Bytes    []uint64 // length of each record in bytes
	Statuses []string // status of each record: the name of a client.Status
	Columns  []Column // one per operator, or per field of an operator whose values are structs
	Texts    []Texts  // columns from Columns whose values are byte strings
}

// Column has the values of one operator, or of one field of an operator whose values are structs.
type Column struct {
	Name  string // name of the operator
	Field string // name of the field; empty if the operator's values aren't structs
	Spec  string // operator with all parameters; empty if the result doesn't contain it
	Type  arrow.DataType

	values []byte // values of all records, back to back
	width  int    // bytes of a value; variable for byte strings
	ends   []int  // end of each record's byte string in values
	valid  []bool

	column int // index of the column in the schema
	field  int // index of the field in the struct, or whole
}

const (
	// whole marks a column that isn't a field of a struct.
	whole = -1

	// variable is the width of byte strings.
	variable = -1
)

// Texts is a Column whose values are byte strings.
type Texts Column

// Bytes returns the value of record i as a slice of the result, or nil if the record has no value. The value is a byte string or
// little-endian numbers. A position has two numbers, its sequence and its record. Use Numbers to get numbers as a typed slice, and
// Result.Neardup to get positions.
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

// Value returns the value of record i as a slice of the result. The slice is one number for crc32c and the signature for minhash. It
// is nil if the record has no value, or if the column's numbers aren't uint32.
func (c *Column) Value(i int) []uint32 { return Numbers[uint32](c, i) }

// Value returns the byte string of record i as a slice of the result. It is nil if the record has no value.
func (t *Texts) Value(i int) []byte { return (*Column)(t).Bytes(i) }

// Numbers returns the value of record i, a number or a list of numbers, as a slice of the result. It is nil if the record has no value,
// or if the column's numbers aren't of type T.
func Numbers[T arrow.NumericType](c *Column, i int) []T {
	if !c.valid[i] || c.element().ID() != arrow.GetDataType[T]().ID() {
		return nil
	}
	return arrow.GetData[T](c.Bytes(i))
}

// element returns the type of the column's values, or the type of their elements if they are lists.
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

// Column returns the column with the given name. name is an operator's name or spec, or a field's full name, such as "entropy.peak". If
// several columns match, Column prefers the first column with uint32 numbers. It returns nil if no column matches.
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

// AppendUint32s appends the numbers of record i to dst and returns the extended slice. The numbers are from all columns of the operator
// with the given name or spec. AppendUint32s appends nothing if the record has no values.
func (r *Result) AppendUint32s(dst []uint32, operator string, i int) []uint32 {
	for k := range r.Columns {
		if c := &r.Columns[k]; c.Name == operator || c.Spec == operator {
			dst = append(dst, c.Value(i)...)
		}
	}
	return dst
}

// ByteStrings returns the byte strings of an operator or a field. name is an operator's name or spec, or a field's full name, such as
// "echo.text". ByteStrings returns nil if no column of byte strings matches.
func (r *Result) ByteStrings(name string) *Texts {
	for i := range r.Texts {
		if t := &r.Texts[i]; (*Column)(t).is(name) {
			return t
		}
	}
	return nil
}

// is reports whether name is the column's operator, its spec, or its operator and field with a dot between them.
func (c *Column) is(name string) bool {
	return c.Name == name || c.Spec == name || c.Field != "" && c.Name+"."+c.Field == name
}

// Decode decodes an Arrow result. The returned Result doesn't refer to body. An empty body is the result of a single record that a filter
// left out. Decode refuses annotated results (see HeaderAnnotation), because they have the columns of their input. Even for an invalid
// body, Decode allocates only a few times the body's length.
func Decode(body []byte) (result *Result, err error) {
	defer func() {
		if fault := recover(); fault != nil { // the library panics on some invalid streams
			result, err = nil, fmt.Errorf("arrow result: %v", fault)
		}
	}()
	if len(body) == 0 {
		return new(Result), nil
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
	if err := result.takeNumbers(); err != nil {
		return nil, fmt.Errorf("arrow result: %w", err)
	}
	for _, c := range result.Columns {
		if c.width == variable && c.Type.ID() != arrow.LIST {
			result.Texts = append(result.Texts, Texts(c))
		}
	}
	return result, nil
}

// takeNumbers moves the numbers of the records from Columns to Numbers.
func (r *Result) takeNumbers() error {
	i := slices.IndexFunc(r.Columns, func(c Column) bool { return c.Name == numberColumn && c.Spec == "" && c.Type.ID() == arrow.UINT32 })
	if i < 0 {
		return nil
	}
	c := &r.Columns[i]
	if slices.Contains(c.valid, false) {
		return fmt.Errorf("column %q has nulls", c.Name)
	}
	r.Numbers = append([]uint32{}, arrow.GetData[uint32](c.values)...)
	r.Columns = slices.Delete(r.Columns, i, i+1)
	return nil
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
	case *arrow.StructType:
		if c.width = positionBytes; isPosition(t) && n == 1 {
			return nil
		}
	case *arrow.ListType:
		if c.width = variable; isPosition(t.Elem()) {
			return nil
		}
	}
	return fmt.Errorf("column %q is %v: no result has this type", c.Name, c.Type)
}

// append appends the rows of a batch. The number of rows is the number of values in the first column, not a declared number.
// The other columns must have the same length.
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
			status = r.Statuses[n-1] // most records have the status of the previous record
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

// append appends the rows of a batch. A row is null if the value or its struct is null.
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
	switch values := values.(type) {
	case *array.Struct, *array.List:
		return c.appendPositions(values, rows)
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

// appendStrings appends the byte strings of valid rows. It returns an error for positions that descend or exceed text.
// It panics if positions are missing or negative, and Decode turns the panic into an error.
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

// budget is an allocator that panics when its allocations exceed the budget. Decode turns the panic into an error.
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
