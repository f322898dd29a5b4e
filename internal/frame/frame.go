// Package frame splits the body of a message into records. A frame is a message that holds many records. Frames keep a
// GPU busy although each record is small.
//
// Package ingest opens a Frame for each message, after decompression. It copies the records into batches with a Cursor,
// and reads single records for dead letters.
//
// Open validates the whole body once and indexes its records, with 8 bytes per record for every framing. All later
// calls only read the index, so no record can fail later. The body isn't copied, except for the compressed buffers of
// an Arrow stream, and for the values of a field of JSON records.
//
// Start reading at Splitter.Open. Arrow streams have separate files, and members.go reads JSON records.
package frame

import (
	"fmt"
	"unsafe"

	"millrace/internal/record"
)

// Status is the status of a record: OK, Null, TooLarge, NoField or InvalidJSON.
type Status = record.Status

// Frame is the index of the records of one message. Splitter.Open fills it. Its zero value has no records. After Open,
// any number of goroutines may read it.
type Frame struct {
	framed bool
	limits limits
	bytes  int

	// Record i is base[starts[i]:ends[i]], where base belongs to the segment that holds record i.
	starts, ends []uint32
	segments     []segment
	statuses     []Status // empty if every record is OK

	arrow   arrowMemory
	members members
}

// segment is a range of records that lie in the same memory. It begins where the previous segment ends.
type segment struct {
	base   []byte
	end    int  // index of the first record after the segment
	packed bool // each record begins where the previous record ends, and a record that isn't OK has no bytes
}

// Reset removes the records and the reference to the body. It keeps the memory of the index.
func (f *Frame) Reset() {
	clear(f.segments)
	f.framed, f.bytes = false, 0
	f.starts, f.ends = f.starts[:0], f.ends[:0]
	f.segments, f.statuses = f.segments[:0], f.statuses[:0]
	f.arrow.reset()
	f.members.reset()
}

// Size returns the size of the frame's own memory in bytes. Reset keeps this memory for another message.
func (f *Frame) Size() int64 {
	size := 4*(cap(f.starts)+cap(f.ends)) + cap(f.statuses) + cap(f.segments)*int(unsafe.Sizeof(segment{}))
	return int64(size) + f.arrow.size() + f.members.size()
}

// Framed reports whether the message has a framing. If not, its body is the only record.
func (f *Frame) Framed() bool { return f.framed }

// Records returns the number of records.
func (f *Frame) Records() int { return len(f.starts) }

// Bytes returns the total length of the records that go to the device. Records whose status isn't OK count as 0.
func (f *Frame) Bytes() int64 { return int64(f.bytes) }

// Copied returns the bytes that the frame holds in addition to the body and the index: the decompressed buffers of an Arrow
// stream, and the values of a field.
func (f *Frame) Copied() int64 {
	return int64(f.arrow.inflated) + int64(len(f.members.values)+len(f.members.rendered))
}

// Statuses returns the status of each record, or nil if every record is OK. The slice is valid until the next Open or
// Reset, and the caller must not change it.
func (f *Frame) Statuses() []Status {
	if len(f.statuses) == 0 {
		return nil
	}
	return f.statuses
}

// Status returns the status of record i.
func (f *Frame) Status(i int) Status {
	if len(f.statuses) == 0 {
		return record.OK
	}
	return f.statuses[i]
}

// Length returns the length of record i in bytes. A null record and a record without its field have length 0. Length returns the true
// length of a record that is too large, although batches hold an empty row for it.
func (f *Frame) Length(i int) int { return int(f.ends[i] - f.starts[i]) }

// Record returns record i. The slice refers to the body, or to memory of the frame. It is valid until the next Open or
// Reset. Record searches the segments of an Arrow stream, so use a Cursor to read all records.
func (f *Frame) Record(i int) []byte {
	s := 0
	for f.segments[s].end <= i {
		s++
	}
	return f.segments[s].row(f, i)
}

// row returns record i, which belongs to the segment.
func (s *segment) row(f *Frame, i int) []byte {
	end := f.ends[i]
	return s.base[f.starts[i]:end:end]
}

// add appends a record to the index. start and end are relative to the base of the open segment.
func (f *Frame) add(start, end int) {
	if f.members.on {
		f.addJSON(start, end)
		return
	}
	f.starts = append(f.starts, uint32(start))
	f.ends = append(f.ends, uint32(end))
	if end-start > f.limits.record {
		f.setStatus(len(f.starts)-1, record.TooLarge)
		return
	}
	f.bytes += end - start
}

// endSegment closes the open segment, which has the records added since the previous segment.
func (f *Frame) endSegment(base []byte, packed bool) {
	f.segments = append(f.segments, segment{base: base, end: len(f.starts), packed: packed})
}

// setStatus sets the status of record i. All earlier records without a status become OK. No later record may have a status.
func (f *Frame) setStatus(i int, s Status) {
	for len(f.statuses) < i {
		f.statuses = append(f.statuses, record.OK)
	}
	f.statuses = append(f.statuses, s)
}

// padStatuses sets the status OK for all records after the last record with a status. It does nothing if no record has a status.
func (f *Frame) padStatuses() {
	for n := len(f.statuses); n > 0 && n < len(f.starts); n++ {
		f.statuses = append(f.statuses, record.OK)
	}
}

// Exclude gives record i a status other than OK. Later batches hold an empty row for the record. No other goroutine may read
// the frame at the same time.
func (f *Frame) Exclude(i int, s Status) {
	for len(f.statuses) < len(f.starts) {
		f.statuses = append(f.statuses, record.OK)
	}
	f.statuses[i] = s
	at := 0
	for f.segments[at].end <= i {
		at++
	}
	f.segments[at].packed = false
}

// isFull reports whether the frame has reached its limit of records.
func (f *Frame) isFull() bool { return len(f.starts) >= f.limits.records }

// tooMany returns the error for a frame that has more records than its limit. offset is the position of the first record beyond the limit.
func (f *Frame) tooMany(offset int) error {
	return tooLarge(offset, "the frame has more than %d records: send smaller frames, or raise MILLRACE_FRAME_RECORDS",
		f.limits.records)
}

// misframed returns the error for a body that doesn't follow its framing.
func (f *Frame) misframed(offset int, what string, args ...any) error {
	return invalid(offset, "%s: send whole frames, and set MILLRACE_FRAMING to the framing that the producer uses",
		fmt.Sprintf(what, args...))
}

// Reason is the reason why a body can't be split. The message's dead letter contains it.
type Reason string

const (
	Invalid  Reason = "invalid_frame" // the body can't be parsed
	TooLarge Reason = "too_large"     // the body exceeds a limit of the Splitter
)

// Error reports a body that can't be split into records.
type Error struct {
	Reason Reason
	Offset int64  // position of the fault in the body, in bytes
	Text   string // description of the fault, and advice
}

// Error returns the reason, the position and the text.
func (e *Error) Error() string { return fmt.Sprintf("%s at byte %d: %s", e.Reason, e.Offset, e.Text) }

// invalid returns the error for a fault at an offset.
func invalid(offset int, format string, args ...any) *Error {
	return &Error{Reason: Invalid, Offset: int64(offset), Text: fmt.Sprintf(format, args...)}
}

// tooLarge returns the error for a limit that is exceeded at an offset.
func tooLarge(offset int, format string, args ...any) *Error {
	return &Error{Reason: TooLarge, Offset: int64(offset), Text: fmt.Sprintf(format, args...)}
}
