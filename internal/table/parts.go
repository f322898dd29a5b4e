package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"millrace/internal/operator"
)

// Part is one result message for an input. A large result has several parts.
type Part struct {
	From, To int // the part contains the records [From, To) of the table
	First    int // number of the part's first record in the message; 0 for the first part
	Body     []byte

	// Cut identifies the parts that belong together. It is the checksum of their bodies and boundaries, so it changes
	// with the division, encoding or compression of the table. Cut is 0 if there is only one part.
	Cut uint32
}

// RecordTooLargeError is the error for records whose results alone exceed the limit.
type RecordTooLargeError struct {
	Record int   // number of the first such record in the message
	Others []int // numbers of the other such records
	Bytes  int   // length of a body with only the first such record
	Limit  int
}

// Error names the first record and both lengths.
func (r *RecordTooLargeError) Error() string {
	return fmt.Sprintf("record %d: its result has %d bytes, and a message takes %d: raise the server's max_payload, or the stream's max_msg_size", r.Record, r.Bytes, r.Limit)
}

// sampleRecords is the number of records that are encoded to estimate the size of further records.
const sampleRecords = 256

// Parts encodes all records in order as result messages with bodies of at most limit bytes. If the body is longer, it
// divides the records among several parts, and each part is a complete message. A non-nil compress must append the
// compressed src to dst. The limit then applies to compressed bodies. Parts doesn't compress an empty body. A table
// without records has one part.
//
// Parts appends the bodies to dst and returns the extended slice. The parts refer to the memory of that slice. If
// single records exceed the limit, the error is a *RecordTooLargeError with all of them. The caller can then call Shrink
// and Parts again.
//
// The parts depend only on the table, the format, the limit and compress. Nearly every part is encoded only once. If records
// exceed the limit, each record is encoded a few times.
func (t *Table) Parts(dst []byte, f operator.Format, limit int, compress func(dst, src []byte) []byte) ([]byte, []Part, error) {
	c := cutter{table: t, format: f, compress: compress, limit: limit, body: dst}
	n := t.Records()
	if n == 0 {
		_, fits := c.try(0, 0)
		switch {
		case t.fault != nil:
			return dst, nil, t.fault
		case !fits:
			return dst, nil, errors.New("table: a result without records exceeds the limit")
		}
		return c.body, t.slices(c.body, len(dst), c.ends), nil
	}
	take, most := n, t.maxBytes(f, 0, n)
	if err := c.checkHead(); err != nil {
		return dst, nil, err
	}
	if most > limit {
		take = c.estimate(0, min(n, sampleRecords))
	}
	for from := 0; from < n; {
		took, size, err := c.cut(from, min(take, n-from))
		switch {
		case err != nil:
			return dst, nil, err
		case len(c.body)-len(dst) > most && t.rows(f) != nil:
			return dst, nil, errHead
		}
		from += took
		take = max(took, scaled(took, size, limit)) // the next part has similar records
		if c.large != nil {
			// The parts won't be used. Small steps bound the number of records that are encoded together with a record that is too large.
			c.body, c.ends = c.body[:len(dst)], nil
			take = min(take, 2*took)
		}
	}
	if c.large != nil {
		return dst, nil, c.large
	}
	return c.body, t.slices(c.body, len(dst), c.ends), nil
}

// errHead is the error for rows of an Arrow stream whose parts would consist mostly of repetitions.
var errHead = errors.New("the schema and the dictionaries of the Arrow stream, which each part of the result has, are more than half of a message: send strings without dictionaries, or raise the server's max_payload")

// checkHead returns an error if the parts of an Arrow stream have too little space for rows.
func (c *cutter) checkHead() error {
	t, rows := c.table, c.table.rows(c.format)
	if rows == nil {
		return nil
	}
	head, err := rows.AppendHead(nil, t.annotation.name, t.appendArrow(nil, 0, 0))
	if err != nil {
		return err
	}
	if c.compress != nil {
		head = c.compress(nil, head)
	}
	if len(head) > c.limit/2 {
		return errHead
	}
	return nil
}

type end struct {
	record int // index of the next part's first record
	at     int // position in the bodies
}

func (t *Table) slices(bodies []byte, at int, ends []end) []Part {
	parts := make([]Part, 0, len(ends))
	from := 0
	for _, e := range ends {
		p := Part{From: from, To: e.record, Body: bodies[at:e.at:e.at]}
		if from > 0 {
			p.First = t.Number(from)
		}
		parts = append(parts, p)
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

// identifyCut returns the CRC-32C checksum of the parts' bodies, records and lengths. Processors have an instruction
// for CRC-32C.
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

// cutter divides a table into parts and appends their bodies to body.
type cutter struct {
	table    *Table
	format   operator.Format
	compress func(dst, src []byte) []byte
	limit    int
	body     []byte
	ends     []end
	large    *RecordTooLargeError // nil if every record fits
}

// maxPart is the maximum length of the byte strings and the kept fields in one part. Positions in Arrow and in the binary format have 32
// bits. No server accepts messages of that size.
const maxPart = 1<<30 - 1

// encode appends the body of a message with the records [from, to) and returns its length. If the byte strings and the kept
// fields alone are too large, encode only returns their length.
func (c *cutter) encode(from, to int) int {
	before, least := len(c.body), c.table.strings.bytesOf(from, to)+c.table.fields.bytesOf(from, to)
	if least > maxPart || c.compress == nil && least > c.limit {
		return least // the body would have at least this length
	}
	if c.compress == nil {
		c.body = c.table.Append(c.body, c.format, from, to)
		return len(c.body) - before
	}
	t := c.table
	t.scratch = resized(t.scratch[:0], t.maxBytes(c.format, from, to))
	t.scratch = t.Append(t.scratch[:0], c.format, from, to)
	if len(t.scratch) > 0 {
		c.body = c.compress(c.body, t.scratch)
	}
	return len(c.body) - before
}

// try appends a part with the records [from, to) if the part fits. size is the length of its body.
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

// estimate returns the number of records that fit into a part if they are similar to the records [from, to).
func (c *cutter) estimate(from, to int) int {
	before := len(c.body)
	size := c.encode(from, to)
	c.body = c.body[:before]
	return scaled(to-from, size, c.limit)
}

// scaled returns the number of records that have about limit bytes if n records have size bytes. The number is about 3
// % too low, because a part that is too large costs another encoding. It is at least 1.
func scaled(n, size, limit int) int {
	return max(1, int(float64(n)*float64(limit)/float64(max(size, 1))*0.96875))
}

// cut appends one part with at most take records, beginning at index from. It returns the number of records and the length of the part. If
// the first record alone is too large, cut adds it to large, and appends nothing. The first two retries estimate the number of records from
// the length of the part that was too large. Each further retry halves the number, which bounds the number of encodings.
func (c *cutter) cut(from, take int) (took, size int, err error) {
	for attempt := 0; ; attempt++ {
		size, fits := c.try(from, from+take)
		switch {
		case fits:
			return take, size, nil
		case c.table.fault != nil:
			return 0, 0, c.table.fault
		case take == 1:
			c.addLarge(c.table.Number(from), size)
			return 1, size, nil
		case attempt < 2:
			take = min(take-1, scaled(take, size, c.limit))
		default:
			take /= 2
		}
	}
}

// addLarge adds a record whose result alone has the given size.
func (c *cutter) addLarge(number, size int) {
	if c.large == nil {
		c.large = &RecordTooLargeError{Record: number, Bytes: size, Limit: c.limit}
		return
	}
	c.large.Others = append(c.large.Others, number)
}
