package frame

import "millrace/internal/record"

// Batch receives records. *streams.Batch implements it.
type Batch interface {
	// Append copies a record to the end of the batch. It returns false if the record doesn't fit.
	Append(record []byte) bool

	// AppendRun copies the records that lie back to back in values, and stops at a record that doesn't fit. It returns
	// the number of copied records. ends holds the position after each record, relative to any origin. The last
	// position is the end of values.
	AppendRun(values []byte, ends []uint32) int
}

// Cursor is a position between two records of a frame. Copying a Cursor copies its position. The next Open or Reset of the
// frame makes its Cursors invalid.
type Cursor struct {
	frame   *Frame
	next    int // index of the record after the position
	segment int // index of the segment that holds next, or of an earlier segment
}

// Cursor returns a position before the first record.
func (f *Frame) Cursor() Cursor { return Cursor{frame: f} }

// Next returns the index of the record after the position. It returns Records() at the end of the frame.
func (c *Cursor) Next() int { return c.next }

// Done reports whether the position is at the end of the frame.
func (c *Cursor) Done() bool { return c.next >= c.frame.Records() }

// Skip moves the position forward by n records, but not past the end of the frame.
func (c *Cursor) Skip(n int) { c.next += min(max(n, 0), c.frame.Records()-c.next) }

// Fill copies records into b, and moves the position past them. It stops when a record doesn't fit, after limit records, or
// at the end of the frame. It returns the number of copied records. A record whose status is not OK becomes an empty row, so
// that the rows of a batch are consecutive records.
//
// If Fill returns 0 for an empty batch although the frame isn't done, the batch is smaller than a record. To prevent
// that, set Splitter.MaxRecord to at most the size of a batch.
func (c *Cursor) Fill(b Batch, limit int) int {
	f, first := c.frame, c.next
	last := first + min(max(limit, 0), f.Records()-first)
	for c.next < last {
		for f.segments[c.segment].end <= c.next {
			c.segment++
		}
		s := &f.segments[c.segment]
		from, to := c.next, min(last, s.end)
		if s.packed {
			c.next += b.AppendRun(s.base[f.starts[from]:f.ends[to-1]], f.ends[from:to])
		} else {
			c.next += s.appendEach(f, b, from, to)
		}
		if c.next < to {
			break
		}
	}
	return c.next - first
}

// appendEach copies the segment's records [from, to) into b, and stops at a record that doesn't fit. It returns the
// number of copied records.
func (s *segment) appendEach(f *Frame, b Batch, from, to int) int {
	marked := len(f.statuses) > 0
	for i := from; i < to; i++ {
		row := s.row(f, i)
		if marked && f.statuses[i] != record.OK {
			row = nil
		}
		if !b.Append(row) {
			return i - from
		}
	}
	return to - from
}
