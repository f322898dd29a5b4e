// Package arrow builds frames for a worker with MILLRACE_FRAMING=arrow, and reads results from a worker with
// MILLRACE_RESULT_FORMAT=arrow. It is separate from package millrace/client because it needs the Arrow library. A program that
// already uses Arrow record batches doesn't need this package. Such a program writes frames with the library's ipc.Writer and
// reads results with the library's ipc.Reader.
//
// Start reading with Frame and Decode. docs/results.md in Millrace's repository specifies the columns of a result.
package arrow

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// ErrFull is the error that Frame.Append wraps if the frame's records would have 2 GiB or more.
var ErrFull = errors.New("the frame is full")

// Frame collects records and encodes them as an Arrow IPC stream with one binary column. One goroutine may use it at a time.
// The frame can be reused after Encode. Its content type is client.TypeArrow.
type Frame struct {
	schema  *arrow.Schema
	builder *array.BinaryBuilder
}

// NewFrame returns an empty frame. A worker accepts any name for the only binary column, unless MILLRACE_FIELD
// requires a name.
func NewFrame(column string) *Frame {
	return &Frame{
		schema:  arrow.NewSchema([]arrow.Field{{Name: column, Type: arrow.BinaryTypes.Binary, Nullable: true}}, nil),
		builder: array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary),
	}
}

// Append appends a copy of record, or returns an error that wraps ErrFull.
func (f *Frame) Append(record []byte) error {
	if f.builder.DataLen() > math.MaxInt32-len(record) {
		return fmt.Errorf("%w: %d bytes in %d records, and the next has %d", ErrFull, f.builder.DataLen(), f.Len(), len(record))
	}
	f.builder.Append(record)
	return nil
}

// AppendNull appends a null record. Its result has the status null.
func (f *Frame) AppendNull() { f.builder.AppendNull() }

// Len returns the number of records.
func (f *Frame) Len() int { return f.builder.Len() }

// Encode appends the frame to dst and returns the extended slice. The frame is empty afterwards.
func (f *Frame) Encode(dst []byte) ([]byte, error) {
	column := f.builder.NewArray()
	defer column.Release()
	batch := array.NewRecordBatch(f.schema, []arrow.Array{column}, int64(column.Len()))
	defer batch.Release()
	out := bytes.NewBuffer(dst)
	w := ipc.NewWriter(out, ipc.WithSchema(f.schema))
	if err := errors.Join(w.Write(batch), w.Close()); err != nil {
		return dst, fmt.Errorf("encode a frame of %d records: %w", column.Len(), err)
	}
	return out.Bytes(), nil
}
