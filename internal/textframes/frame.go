// Package textframes packs records into frames, and computes the expected results of frames.
// The commands `worker send`, `worker retry`, `worker bench nats` and `worker demo` use it.
package textframes

import (
	"bytes"
	"encoding/json"
	"fmt"

	"millrace/client"
	"millrace/client/arrow"
	"millrace/internal/frame"
)

// Append appends a frame of the records to dst. Without a framing, there must be one record. Records of a newline-delimited frame must not
// contain a line break.
func Append(dst []byte, framing frame.Framing, records [][]byte) (_ []byte, err error) {
	if framing == frame.None {
		if len(records) != 1 {
			return dst, fmt.Errorf("a message without a framing holds 1 record, not %d", len(records))
		}
		return append(dst, records[0]...), nil
	}
	switch framing {
	case frame.Arrow:
		return appendArrow(dst, records)
	case frame.JSONArray:
		return appendArray(dst, records)
	}
	for _, r := range records {
		switch framing {
		case frame.NewlineDelimited:
			dst, err = client.AppendNewline(dst, r)
		case frame.LengthDelimited:
			dst, err = client.AppendLength(dst, r)
		case frame.VarintLengthDelimited:
			dst = client.AppendVarint(dst, r)
		default:
			err = fmt.Errorf("no frame can be made with the framing %v: use a specific one", framing)
		}
		if err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendArray appends a JSON array. Each record must be a JSON value.
func appendArray(dst []byte, records [][]byte) ([]byte, error) {
	for i, r := range records {
		if !json.Valid(r) {
			return dst, fmt.Errorf("record %d isn't valid JSON, so it can't be in a JSON array", i)
		}
	}
	dst = append(dst, '[')
	dst = append(dst, bytes.Join(records, []byte(","))...)
	return append(dst, ']'), nil
}

// appendArrow appends an Arrow IPC stream of one batch.
func appendArrow(dst []byte, records [][]byte) ([]byte, error) {
	f := arrow.NewFrame("text")
	for _, r := range records {
		if err := f.Append(r); err != nil {
			return dst, err
		}
	}
	return f.Encode(dst)
}
