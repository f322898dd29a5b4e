package textframes

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"millrace/internal/frame"
)

// Append appends a frame of these records to dst. Without a framing, there must be one record. Records of a newline-delimited frame
// must not contain a line break.
func Append(dst []byte, framing frame.Framing, records [][]byte) ([]byte, error) {
	switch framing {
	case frame.None:
		if len(records) != 1 {
			return dst, fmt.Errorf("a message without a framing holds 1 record, not %d", len(records))
		}
		return append(dst, records[0]...), nil
	case frame.Arrow:
		return appendArrow(dst, records)
	}
	for _, r := range records {
		switch framing {
		case frame.NewlineDelimited:
			dst = append(append(dst, r...), '\n')
		case frame.LengthDelimited:
			dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(r))), r...)
		case frame.VarintLengthDelimited:
			dst = append(binary.AppendUvarint(dst, uint64(len(r))), r...)
		default:
			return dst, fmt.Errorf("no frame can be made with the framing %v: use a specific one", framing)
		}
	}
	return dst, nil
}

// schema has one column, so that a worker finds it under any name.
var schema = arrow.NewSchema([]arrow.Field{{Name: "text", Type: arrow.BinaryTypes.String}}, nil)

// appendArrow appends an Arrow IPC stream of one batch.
func appendArrow(dst []byte, records [][]byte) ([]byte, error) {
	builder := array.NewStringBuilder(memory.DefaultAllocator)
	defer builder.Release()
	builder.Reserve(len(records))
	for _, r := range records {
		builder.BinaryBuilder.Append(r)
	}
	column := builder.NewArray()
	defer column.Release()
	batch := array.NewRecordBatch(schema, []arrow.Array{column}, int64(len(records)))
	defer batch.Release()
	out := appender{dst}
	w := ipc.NewWriter(&out, ipc.WithSchema(schema))
	if err := errors.Join(w.Write(batch), w.Close()); err != nil {
		return dst, fmt.Errorf("encode %d records as an Arrow stream: %w", len(records), err)
	}
	return out.bytes, nil
}

// appender is a writer that appends.
type appender struct{ bytes []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.bytes = append(a.bytes, p...)
	return len(p), nil
}
