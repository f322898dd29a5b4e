package arrowipc

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"millrace/internal/record"
)

// Decode decodes a stream that an Encoder with these columns wrote. The values of records that aren't OK are zeros. A stream with
// another schema is an error, and so are a null without such a status and a status that isn't known.
func Decode(columns []Column, body []byte) (rows Rows, err error) {
	defer func() {
		if p := recover(); p != nil {
			rows, err = Rows{}, fmt.Errorf("not an Arrow stream of results: %v", p)
		}
	}()
	// The schema's message is compared as bytes, for the reason that checkMessages has.
	head := NewEncoder(columns).head
	if !bytes.HasPrefix(body, head) {
		return Rows{}, fmt.Errorf("not an Arrow stream of results: its first %d bytes are not the schema %v", len(head), newSchema(columns))
	}
	if err := checkMessages(body[len(head):]); err != nil {
		return Rows{}, fmt.Errorf("not an Arrow stream of results: %w", err)
	}
	reader, err := ipc.NewReader(bytes.NewReader(body))
	if err != nil {
		return Rows{}, fmt.Errorf("not an Arrow stream of results: %w", err)
	}
	defer reader.Release()
	rows.Values = make([][]byte, len(columns))
	if slices.ContainsFunc(columns, func(c Column) bool { return c.binaries() > 0 }) {
		rows.Spans = make([][]Span, len(columns))
	}
	for reader.Next() {
		if err := rows.add(columns, reader.RecordBatch()); err != nil {
			return Rows{}, err
		}
	}
	if err := reader.Err(); err != nil {
		return Rows{}, fmt.Errorf("arrow stream after %d records: %w", len(rows.Lengths), err)
	}
	return rows, nil
}

// add appends the records of a batch.
func (r *Rows) add(columns []Column, batch arrow.RecordBatch) error {
	var (
		n        = int(batch.NumRows())
		first    = len(r.Lengths)
		lengths  = batch.Column(0).(*array.Uint64)
		statuses = batch.Column(1).(*array.String)
	)
	for i := range n {
		status, err := record.ParseStatus(statuses.Value(i))
		if err != nil {
			return fmt.Errorf("record %d: %w", first+i, err)
		}
		if lengths.IsNull(i) || statuses.IsNull(i) {
			return fmt.Errorf("record %d: its length or status is null", first+i)
		}
		r.Lengths = append(r.Lengths, lengths.Value(i))
		r.Statuses = append(r.Statuses, status)
	}
	for k, c := range columns {
		column := batch.Column(fixedColumns + k)
		for i := range n {
			if null := r.Statuses[first+i] != record.OK; null != column.IsNull(i) {
				return fmt.Errorf("record %d, %s: null is %t, and its status is %v", first+i, c.Name, column.IsNull(i), r.Statuses[first+i])
			}
		}
		if err := r.addColumn(k, c, column, n); err != nil {
			return fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	return nil
}

// addColumn appends the n records of a column.
func (r *Rows) addColumn(k int, c Column, column arrow.Array, n int) error {
	if c.Fields != nil {
		return r.addFields(k, c, column, n)
	}
	values, err := valuesOf(c.Width, column)
	if err != nil {
		return err
	}
	for i := range n {
		if column.IsNull(i) {
			r.Values[k] = append(r.Values[k], make([]byte, c.Width)...)
		} else {
			r.Values[k] = append(r.Values[k], values[i*c.Width:(i+1)*c.Width]...)
		}
	}
	return nil
}

// valuesOf returns the memory of a column's values, from its first record on.
func valuesOf(width int, column arrow.Array) ([]byte, error) {
	data := column.Data()
	values := data.Buffers()[1]
	if data.Offset() != 0 {
		return nil, errors.New("its values don't start with its memory")
	}
	if values == nil || values.Len() < column.Len()*width {
		if column.Len() == 0 {
			return nil, nil
		}
		return nil, errors.New("its values are truncated")
	}
	return values.Bytes(), nil
}
