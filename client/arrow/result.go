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
	Columns  []Column // one per operator or field whose values are unsigned numbers of 32 bits; those of other types are left out
	Texts    []Texts  // one per operator or field whose values are byte strings
}

// Column has the values of one operator, or of one field of an operator whose values are structs.
type Column struct {
	Name  string // name of the operator
	Field string // name of the field; empty if the operator's values aren't structs
	Spec  string // the operator with all parameters; empty if the result doesn't tell

	stride int // numbers per value
	values []uint32
	valid  []bool
}

// Value returns the value of record i, a slice of the result: one number for crc32c, and the signature for minhash. It is nil if the
// record has none.
func (c *Column) Value(i int) []uint32 {
	if !c.valid[i] {
		return nil
	}
	return c.values[i*c.stride:][:c.stride:c.stride]
}

// Len returns the number of records.
func (r *Result) Len() int { return len(r.Bytes) }

// OK reports whether record i was processed.
func (r *Result) OK(i int) bool { return r.Statuses[i] == client.OK.String() }

// Column returns the first column of the operator with this name or this spec, or of the field with this name, such as "entropy.peak". It
// returns nil if there is none.
func (r *Result) Column(name string) *Column {
	for i := range r.Columns {
		if c := &r.Columns[i]; c.Name == name || c.Spec == name || c.Field != "" && c.Name+"."+c.Field == name {
			return c
		}
	}
	return nil
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
	result, places, err := newResult(reader.Schema())
	for err == nil && reader.Next() {
		err = result.append(reader.RecordBatch(), places)
	}
	if err = errors.Join(err, reader.Err()); err != nil {
		return nil, fmt.Errorf("arrow result, record %d: %w", result.Len(), err)
	}
	return result, nil
}

// place is where the values of a column are in the schema.
type place struct {
	column int
	field  int // of a struct, or whole
}

// places has the places of a result's Columns and Texts.
type places struct{ columns, texts []place }

// values returns a column of a batch, and its values: itself, or those of the field.
func (p place) values(batch arrow.RecordBatch) (data, values arrow.Array) {
	data = batch.Column(p.column)
	if s, ok := data.(*array.Struct); ok {
		return data, s.Field(p.field)
	}
	return data, data
}

// whole marks a column that isn't a struct.
const whole = -1

// newResult returns a result without records, and where each of its columns is in the schema.
func newResult(schema *arrow.Schema) (*Result, places, error) {
	var (
		r     = new(Result)
		found places
	)
	for i, field := range schema.Fields() {
		if i < 2 {
			if want := []string{bytesColumn, statusColumn}[i]; field.Name != want {
				return r, found, fmt.Errorf("column %d is %q, not %q: not a result", i+1, field.Name, want)
			}
			continue
		}
		column := Column{Name: field.Name}
		if at := field.Metadata.FindKey(specKey); at >= 0 {
			column.Spec = field.Metadata.Values()[at]
		}
		r.add(column, field.Type, place{i, whole}, &found)
		if t, ok := field.Type.(*arrow.StructType); ok {
			for j, f := range t.Fields() {
				column.Field = f.Name
				r.add(column, f.Type, place{i, j}, &found)
			}
		}
	}
	if schema.NumFields() < 2 {
		return r, found, fmt.Errorf("%d columns: a result begins with %s and %s", schema.NumFields(), bytesColumn, statusColumn)
	}
	return r, found, nil
}

// add adds a column if its values have one of the types that a Result has.
func (r *Result) add(c Column, t arrow.DataType, at place, found *places) {
	switch {
	case r.addColumn(c, t):
		found.columns = append(found.columns, at)
	case r.addTexts(c, t):
		found.texts = append(found.texts, at)
	}
}

// addColumn adds a column if its values are unsigned numbers of 32 bits.
func (r *Result) addColumn(c Column, t arrow.DataType) bool {
	c.stride = 1
	if list, ok := t.(*arrow.FixedSizeListType); ok {
		c.stride, t = int(list.Len()), list.Elem()
	}
	if t.ID() != arrow.UINT32 {
		return false
	}
	r.Columns = append(r.Columns, c)
	return true
}

// append appends the rows of a batch. It checks every column's length against that of the first, whose numbers are in memory.
func (r *Result) append(batch arrow.RecordBatch, found places) error {
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
		data, values := found.columns[k].values(batch)
		if err := r.Columns[k].append(data, values, rows); err != nil {
			return err
		}
	}
	for k := range r.Texts {
		data, values := found.texts[k].values(batch)
		if err := r.Texts[k].append(data, values, rows); err != nil {
			return err
		}
	}
	return nil
}

// append appends the rows of a batch. data is the column, and values its values: itself, or those of a field.
func (c *Column) append(data, values arrow.Array, rows int) error {
	if data.Len() != rows || values.Len() != rows {
		return fmt.Errorf("column %q has %d rows of %d values, not %d", c.Name, data.Len(), values.Len(), rows)
	}
	if rows == 0 {
		return nil
	}
	numbers, from := values, 0
	if list, ok := values.(*array.FixedSizeList); ok {
		start, _ := list.ValueOffsets(0)
		numbers, from = list.ListValues(), int(start)
	}
	elements, ok := numbers.(*array.Uint32)
	if !ok {
		return fmt.Errorf("column %q is %v", c.Name, data.DataType())
	}
	n := rows * c.stride
	if from < 0 || n < 0 || from+n > len(elements.Uint32Values()) {
		return fmt.Errorf("column %q has %d numbers, not %d", c.Name, len(elements.Uint32Values())-from, n)
	}
	c.values = append(c.values, elements.Uint32Values()[from:from+n]...)
	c.valid = slices.Grow(c.valid, rows)
	for i := range rows {
		c.valid = append(c.valid, data.IsValid(i))
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
