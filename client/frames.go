package client

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrRecord is the error that AppendNewline and AppendLength wrap for a record that their framing can't carry.
var ErrRecord = errors.New("the record doesn't fit the framing")

// AppendNewline appends a record to a frame for MILLRACE_FRAMING=newline_delimited and returns the extended frame. A worker
// would misread a record that contains LF or ends in CR. For such a record, AppendNewline returns the unchanged frame and an
// error that wraps ErrRecord.
func AppendNewline(frame, record []byte) ([]byte, error) {
	if at := bytes.IndexByte(record, '\n'); at >= 0 {
		return frame, fmt.Errorf("%w: LF at byte %d of %d: use AppendLength or AppendVarint", ErrRecord, at, len(record))
	}
	if n := len(record); n > 0 && record[n-1] == '\r' {
		return frame, fmt.Errorf("%w: CR at its end, byte %d: use AppendLength or AppendVarint", ErrRecord, n-1)
	}
	return append(append(frame, record...), '\n'), nil
}

// AppendLength appends a record to a frame for MILLRACE_FRAMING=length_delimited and returns the extended frame. It writes the
// length of the record as a big-endian uint32, then the record. For a record of 4 GiB or more, it returns the unchanged frame and
// an error that wraps ErrRecord.
func AppendLength(frame, record []byte) ([]byte, error) {
	if uint64(len(record)) > math.MaxUint32 {
		return frame, fmt.Errorf("%w: %d bytes, and a length has 32 bits", ErrRecord, len(record))
	}
	return append(binary.BigEndian.AppendUint32(frame, uint32(len(record))), record...), nil
}

// AppendVarint appends a record to a frame for MILLRACE_FRAMING=varint_length_delimited and returns the extended frame. It writes
// the length of the record as a varint of Protocol Buffers, then the record.
func AppendVarint(frame, record []byte) []byte {
	return append(binary.AppendUvarint(frame, uint64(len(record))), record...)
}
