package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"millrace/internal/operator"
)

// Part is one result message of several for the same input.
type Part struct {
	From, To int // its records: from From up to, but not including, To
	Body     []byte

	// Cut identifies the parts that belong together. It is the checksum of their bodies and of where they are cut. So the same table
	// that is cut in another way, or encoded or compressed into other bytes, has another one. It is 0 if there is only one part.
	Cut uint32
}

// RecordTooLargeError is the error for a record whose result alone exceeds the limit.
type RecordTooLargeError struct {
	Record int // its index
	Bytes  int // length of a body with this record alone
	Limit  int
}

// Error names the record and both lengths.
func (r *RecordTooLargeError) Error() string {
	return fmt.Sprintf("record %d: its result has %d bytes, and a message takes %d: raise the server's max_payload, or the stream's max_msg_size", r.Record, r.Bytes, r.Limit)
}

// sampleRecords is the number of records that are encoded to estimate the others.
const sampleRecords = 256

// Parts encodes all records as result messages with bodies of at most limit bytes, in order. A body that exceeds the limit is cut
// between records, and every part is a complete message. compress, if not nil, appends the compressed form of src to dst, and the
// limit applies to that. A table without records has one part. compress isn't called for a body that is empty.
//
// Parts appends the bodies to dst and returns it, extended. The parts refer to that memory. If a record alone exceeds the limit, the
// error is a *RecordTooLargeError. The caller can then set the record's status to record.TooLarge and try again.
//
// The parts depend on the table, the limit and compress alone. Nearly always, each costs one encoding.
func (t *Table) Parts(dst []byte, f operator.Format, limit int, compress func(dst, src []byte) []byte) ([]byte, []Part, error) {
	c := cutter{table: t, format: f, compress: compress, limit: limit, body: dst}
	n := t.Records()
	if n == 0 {
		if _, fits := c.try(0, 0); !fits {
			return dst, nil, errors.New("table: a result without records exceeds the limit")
		}
		return c.body, t.slices(c.body, len(dst), c.ends), nil
	}
	take := n
	if MostBytes(f, t.ops, n, t.strings.bytesOf(0, n)) > limit {
		take = c.estimate(0, min(n, sampleRecords))
	}
	for from := 0; from < n; {
		took, size, err := c.cut(from, min(take, n-from))
		if err != nil {
			return dst, nil, err
		}
		from += took
		take = max(took, scaled(took, size, limit)) // the next part has similar records
	}
	return c.body, t.slices(c.body, len(dst), c.ends), nil
}

// end is where a part ends.
type end struct {
	record int // index of the next part's first record
	at     int // position in the bodies
}

func (t *Table) slices(bodies []byte, at int, ends []end) []Part {
	parts := make([]Part, 0, len(ends))
	from := 0
	for _, e := range ends {
		parts = append(parts, Part{From: from, To: e.record, Body: bodies[at:e.at:e.at]})
		from, at = e.record, e.at
	}
	if len(parts) > 1 {
		cut := identifyCut(parts)
		for i := range parts {
			parts[i].Cut = cut
		}
	}
	return parts
}

// identifyCut returns the checksum of the parts' bodies, records and lengths. Processors have an instruction for CRC-32C.
func identifyCut(parts []Part) (cut uint32) {
	var place []byte
	for _, p := range parts {
		place = binary.LittleEndian.AppendUint64(place[:0], uint64(p.To))
		place = binary.LittleEndian.AppendUint64(place, uint64(len(p.Body)))
		cut = crc32.Update(crc32.Update(cut, castagnoli, place), castagnoli, p.Body)
	}
	return cut
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// cutter appends parts to body.
type cutter struct {
	table    *Table
	format   operator.Format
	compress func(dst, src []byte) []byte
	limit    int
	body     []byte
	ends     []end
}

// mostPart is the maximum length of the byte strings in one part. Arrow and the binary format have positions of 32 bits. No server takes
// messages of that size.
const mostPart = 1<<30 - 1

// encode appends the body of a message with these records and returns its length. It appends nothing if the byte strings alone are too
// large.
func (c *cutter) encode(from, to int) int {
	before, strings := len(c.body), c.table.strings.bytesOf(from, to)
	if strings > mostPart || c.compress == nil && strings > c.limit {
		return strings // no format has fewer bytes
	}
	if c.compress == nil {
		c.body = c.table.Append(c.body, c.format, from, to)
		return len(c.body) - before
	}
	t := c.table
	t.scratch = resized(t.scratch[:0], MostBytes(c.format, t.ops, to-from, strings))
	t.scratch = t.Append(t.scratch[:0], c.format, from, to)
	if len(t.scratch) > 0 {
		c.body = c.compress(c.body, t.scratch)
	}
	return len(c.body) - before
}

// try appends a part with these records if it fits.
func (c *cutter) try(from, to int) (size int, fits bool) {
	before := len(c.body)
	size = c.encode(from, to)
	if size > c.limit {
		c.body = c.body[:before]
		return size, false
	}
	c.ends = append(c.ends, end{to, len(c.body)})
	return size, true
}

// estimate returns how many records like these fit into a part.
func (c *cutter) estimate(from, to int) int {
	before := len(c.body)
	size := c.encode(from, to)
	c.body = c.body[:before]
	return scaled(to-from, size, c.limit)
}

// scaled returns the number of records that have about limit bytes if n records have size bytes. It is a little too low, because
// a part that is too large costs another encoding. It is at least 1.
func scaled(n, size, limit int) int {
	return max(1, int(float64(n)*float64(limit)/float64(max(size, 1))*0.96875))
}

// cut appends one part with at most take records, the first of which has index from. It returns how many it took and the part's
// length. The first two estimates follow the length of what was too large. After those, each halves the one before, so that the
// number of encodings has a bound for any records.
func (c *cutter) cut(from, take int) (took, size int, err error) {
	for attempt := 0; ; attempt++ {
		size, fits := c.try(from, from+take)
		switch {
		case fits:
			return take, size, nil
		case take == 1:
			return 0, 0, &RecordTooLargeError{Record: from, Bytes: size, Limit: c.limit}
		case attempt < 2:
			take = min(take-1, scaled(take, size, c.limit))
		default:
			take /= 2
		}
	}
}
