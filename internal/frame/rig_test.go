package frame_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"millrace/internal/frame"
	"millrace/internal/record"
	"millrace/internal/streams"
)

var _ frame.Batch = (*streams.Batch)(nil)

// batch has the form of streams.Batch: rows back to back in a buffer, and the end position of each row.
type batch struct {
	buffer  []byte
	bytes   int
	ends    []uint32
	maxRows int
}

func newBatch(maxBytes, maxRows int) *batch {
	return &batch{buffer: make([]byte, maxBytes), ends: make([]uint32, 0, maxRows), maxRows: maxRows}
}

func (b *batch) reset() { b.bytes, b.ends = 0, b.ends[:0] }

func (b *batch) Append(row []byte) bool {
	if len(row) > len(b.buffer)-b.bytes || len(b.ends) == b.maxRows {
		return false
	}
	b.bytes += copy(b.buffer[b.bytes:], row)
	b.ends = append(b.ends, uint32(b.bytes))
	return true
}

func (b *batch) AppendRun(values []byte, ends []uint32) int {
	if len(ends) == 0 {
		return 0
	}
	origin := ends[len(ends)-1] - uint32(len(values))
	rows := min(len(ends), b.maxRows-len(b.ends))
	for rows > 0 && int(ends[rows-1]-origin) > len(b.buffer)-b.bytes {
		rows--
	}
	if rows == 0 {
		return 0
	}
	shift := uint32(b.bytes) - origin
	b.bytes += copy(b.buffer[b.bytes:], values[:ends[rows-1]-origin])
	for _, end := range ends[:rows] {
		b.ends = append(b.ends, end+shift)
	}
	return rows
}

func (b *batch) rows() [][]byte {
	rows := make([][]byte, 0, len(b.ends))
	start := uint32(0)
	for _, end := range b.ends {
		rows = append(rows, bytes.Clone(b.buffer[start:end]))
		start = end
	}
	return rows
}

// drain copies the frame into batches of maxRows rows and returns the rows. maximum limits the records of each Fill.
// Batches have space for every record.
func drain(t testing.TB, f *frame.Frame, maxBytes, maxRows, maximum int) [][]byte {
	t.Helper()
	for i := range f.Records() {
		maxBytes = max(maxBytes, f.Length(i))
	}
	b := newBatch(maxBytes, maxRows)
	rows := [][]byte{}
	for c := f.Cursor(); !c.Done(); {
		before := c.Next()
		n := c.Fill(b, maximum)
		if n > maximum || c.Next() != before+n {
			t.Fatalf("Fill(%d) returned %d and moved from record %d to %d", maximum, n, before, c.Next())
		}
		if n == 0 || len(b.ends) == maxRows {
			if len(b.ends) == 0 {
				t.Fatalf("record %d of %d doesn't fit into an empty batch", c.Next(), f.Records())
			}
			rows = append(rows, b.rows()...)
			b.reset()
		}
	}
	return append(rows, b.rows()...)
}

// wantRecords checks all record data of a frame. A nil record is null. Records longer than maxRecord are too large.
func wantRecords(t testing.TB, f *frame.Frame, want [][]byte, maxRecord int) {
	t.Helper()
	if f.Records() != len(want) {
		t.Fatalf("the frame has %d records, want %d", f.Records(), len(want))
	}
	total, marked := 0, false
	rows := make([][]byte, len(want))
	for i, w := range want {
		status := record.OK
		rows[i] = w
		switch {
		case w == nil:
			status = record.Null
		case len(w) > maxRecord:
			status, rows[i] = record.TooLarge, nil
		default:
			total += len(w)
		}
		marked = marked || status != record.OK
		if f.Status(i) != status || f.Length(i) != len(w) || !bytes.Equal(f.Record(i), w) {
			t.Fatalf("record %d is %q with status %v and length %d; want %q with status %v",
				i, f.Record(i), f.Status(i), f.Length(i), w, status)
		}
	}
	if f.Bytes() != int64(total) {
		t.Errorf("Bytes() = %d, want %d", f.Bytes(), total)
	}
	if statuses := f.Statuses(); (statuses != nil) != marked || marked && len(statuses) != len(want) {
		t.Errorf("Statuses() = %v for %d records", statuses, len(want))
	}
	wantRows(t, f, rows)
}

// wantRows fills batches of several sizes and compares the rows.
func wantRows(t testing.TB, f *frame.Frame, want [][]byte) {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(len(want)), 1))
	for _, maxRows := range []int{1, 2, 7, 1 << 17} {
		for _, maximum := range []int{1, 3, 1 << 40} {
			got := drain(t, f, 1+random.IntN(2000), maxRows, maximum)
			if len(got) != len(want) {
				t.Fatalf("batches of %d rows hold %d rows, want %d", maxRows, len(got), len(want))
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("row %d is %q, want %q", i, got[i], want[i])
				}
			}
		}
	}
}

// open opens a valid body.
func open(t testing.TB, s frame.Splitter, body []byte) *frame.Frame {
	t.Helper()
	var f frame.Frame
	if err := s.Open(&f, "", body); err != nil {
		t.Fatal(err)
	}
	return &f
}

// faultOf returns the error for an invalid body.
func faultOf(t testing.TB, s frame.Splitter, body []byte) *frame.Error {
	t.Helper()
	var f frame.Frame
	err := s.Open(&f, "", body)
	var fault *frame.Error
	if !errors.As(err, &fault) {
		t.Fatalf("Open() = %v, want an *Error", err)
	}
	if c := f.Cursor(); f.Records() != 0 || f.Bytes() != 0 || !c.Done() {
		t.Errorf("after the error the frame has %d records", f.Records())
	}
	return fault
}

// wantFault checks the reason and offset of the error for an invalid body, and returns the error's text.
func wantFault(t testing.TB, s frame.Splitter, body []byte, reason frame.Reason, offset int64) string {
	t.Helper()
	fault := faultOf(t, s, body)
	if fault.Reason != reason || fault.Offset != offset {
		t.Fatalf("Open() = %v, want %s at byte %d", fault, reason, offset)
	}
	return fault.Text
}

// texts returns the records as bytes. The text "<null>" is null.
func texts(records ...string) [][]byte {
	rows := make([][]byte, len(records))
	for i, r := range records {
		if r != "<null>" {
			rows[i] = []byte(r)
		}
	}
	return rows
}

// someRecords returns n random records without line breaks. maximum limits their length in bytes.
func someRecords(random *rand.Rand, n, maximum int) [][]byte {
	rows := make([][]byte, n)
	for i := range rows {
		rows[i] = make([]byte, random.IntN(maximum+1))
		for j := range rows[i] {
			rows[i][j] = ' ' + byte(random.IntN(90))
		}
	}
	return rows
}
