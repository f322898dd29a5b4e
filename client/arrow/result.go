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
	Columns  []Column // one per operator whose values are numbers of 32 bits; columns of other types are left out
}

// Column has the values of one operator.
type Column struct {
	Name string // name of the operator
	Spec string // the operator with all parameters; empty if the result doesn't tell

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

// Column returns the column of the first operator with this name or this spec, and nil if there is none.
func (r *Result) Column(name string) *Column {
	for i := range r.Columns {
		if c := &r.Columns[i]; c.Name == name || c.Spec == name {
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

// newResult returns a result without records, and the index of each column in the schema.
func newResult(schema *arrow.Schema) (*Result, []int, error) {
	r := new(Result)
	var places []int
	for i, field := range schema.Fields() {
		if i < 2 {
			if want := []string{bytesColumn, statusColumn}[i]; field.Name != want {
				return r, nil, fmt.Errorf("column %d is %q, not %q: not a result", i+1, field.Name, want)
			}
			continue
		}
		column := Column{Name: field.Name, stride: 1}
		if at := field.Metadata.FindKey(specKey); at >= 0 {
			column.Spec = field.Metadata.Values()[at]
		}
		switch t := field.Type.(type) {
		case *arrow.Uint32Type:
		case *arrow.FixedSizeListType:
			column.stride = int(t.Len())
			if t.Elem().ID() != arrow.UINT32 {
				continue
			}
		default:
			continue
		}
		r.Columns = append(r.Columns, column)
		places = append(places, i)
	}
	if schema.NumFields() < 2 {
		return r, nil, fmt.Errorf("%d columns: a result begins with %s and %s", schema.NumFields(), bytesColumn, statusColumn)
	}
	return r, places, nil
}

// append appends the rows of a batch. It checks every column's length against that of the first, whose numbers are in memory.
func (r *Result) append(batch arrow.RecordBatch, places []int) error {
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
		if err := r.Columns[k].append(batch.Column(places[k]), rows); err != nil {
			return err
		}
	}
	return nil
}

func (c *Column) append(data arrow.Array, rows int) error {
	if data.Len() != rows {
		return fmt.Errorf("column %q has %d rows, not %d", c.Name, data.Len(), rows)
	}
	if rows == 0 {
		return nil
	}
	numbers, from := data, 0
	if list, ok := data.(*array.FixedSizeList); ok {
		start, _ := list.ValueOffsets(0)
		numbers, from = list.ListValues(), int(start)
	}
	values, ok := numbers.(*array.Uint32)
	if !ok {
		return fmt.Errorf("column %q is %v", c.Name, data.DataType())
	}
	n := rows * c.stride
	if from < 0 || n < 0 || from+n > len(values.Uint32Values()) {
		return fmt.Errorf("column %q has %d numbers, not %d", c.Name, len(values.Uint32Values())-from, n)
	}
	c.values = append(c.values, values.Uint32Values()[from:from+n]...)
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
