package inflight

import (
	"context"
	"sync/atomic"

	"millrace/internal/ingest/unpack"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
	"millrace/internal/table"
)

// Frame is a message that is split into records, from its arrival until its result is stored. Its records may be in several
// batches, of which the last has the delivery among its Items. Every batch writes its records' results into Table.
type Frame struct {
	unpack.Message
	Parts []table.Part // encoded results: one body, or several
	Ahead bool         // whether everything that is stored before the last part is stored
	Kept  uint64       // sequence of the whole message in the stream of dead letters, if it is stored for its records' sake

	operators []operator.Operator
	refusals  Refusals
	d         Delivery // the message, without the memory that it holds
	cuts      []int    // records, in order, that must begin a new batch
	overdrawn bool     // whether the overdraft counts it

	missing atomic.Int32 // batches with records whose results are missing, and one until all records are packed
	over    atomic.Bool
	done    chan struct{} // closed when no result is missing, or err is set
	err     error
}

// Await waits until no result is missing, and returns nil. It returns an error if results will stay missing, or if ctx ends first.
func (f *Frame) Await(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unused reports whether no batch uses the frame any more.
func (f *Frame) unused() bool { return isOver(f.done) && f.missing.Load() == 0 }

// isOver reports whether a channel is closed.
func isOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Fail records that results will stay missing because of err. The goroutine that waits for them may then end the frame.
func (f *Frame) Fail(err error) {
	if f.over.CompareAndSwap(false, true) {
		f.err = err
		close(f.done)
	}
}

// settled records that one of the frame's batches has its results, or that all records are packed. As soon as no result is missing,
// the goroutine that waits for the results may end the frame.
func (f *Frame) settled() {
	if f.missing.Add(-1) == 0 {
		f.Fail(nil)
	}
}

// Put stores the results of a run of records, from a completed batch's rows from row on. It marks the records that an operator refused,
// and passes each refusal to refused, unless that is nil. The row of a record that has a status already is empty, so that it says nothing.
func (f *Frame) Put(completed *streams.Batch, row, first, records int, refused func(Refused)) {
	if f.refusals.Possible() {
		for i := range records {
			found := f.refusals.Find(completed, row+i)
			if found.Reason == "" || f.Table.Status(first+i) != record.OK {
				continue
			}
			f.Table.Refuse(first+i, found.Op, found.Reason)
			if refused != nil {
				refused(found)
			}
		}
	}
	for op, o := range f.operators {
		stride := o.Stride()
		results := completed.Results(op)
		f.Table.Put(op, first, results[row*stride:][:records*stride])
		f.Table.PutStrings(op, first, records, results, completed.Offsets(), row)
	}
}

// Blame records which operator failed on record i with err, if err says so.
func (f *Frame) Blame(i int, err error) {
	if name := operator.ToBlame(err); name != "" {
		f.Table.Blame(i, name)
	}
}

// EncodeParts encodes the results into bodies of at most limit bytes, each compressed by compress unless that is nil. See
// table.Table.Parts for errors.
func (f *Frame) EncodeParts(format operator.Format, limit int, compress func(dst, src []byte) []byte) (err error) {
	f.Encoded, f.Parts, err = f.Table.Parts(f.Encoded[:0], format, limit, compress)
	return err
}

// EncodeSingle encodes the result of a message that is one record.
func (f *Frame) EncodeSingle(format operator.Format, compress func(dst, src []byte) []byte) error {
	f.Encoded = f.Table.AppendSingle(f.Encoded[:0], format)
	body := f.Encoded
	if compress != nil {
		body = compress(nil, f.Encoded)
	}
	f.Parts = append(f.Parts[:0], table.Part{To: 1, Body: body})
	return nil
}

// ResultBytes returns the number of bytes of the encoded parts.
func (f *Frame) ResultBytes() (bytes int) {
	for _, part := range f.Parts {
		bytes += len(part.Body)
	}
	return bytes
}

// Stats describes the frame. The results of all records must be encoded.
func (f *Frame) Stats() FrameStats {
	return FrameStats{
		Framed: f.Framed(), Records: f.Table.Count(), Parts: len(f.Parts), Compressed: f.Compressed, Decompressed: f.Decompressed,
		Decompressing: f.Decompressing, Splitting: f.Splitting,
	}
}

// pack appends records to b until it is full or the frame ends. It returns the number of rows that it appended. A frame without
// records takes one empty row, because the device accepts no batch without rows.
func (f *Frame) pack(b *streams.Batch) (rows int) {
	if f.Records() == 0 {
		if !b.Append(nil) {
			return 0
		}
		return 1
	}
	if len(f.cuts) > 0 && f.cuts[0] == f.Cursor.Next() {
		f.cuts = f.cuts[1:]
	}
	last := f.Records()
	if len(f.cuts) > 0 {
		last = f.cuts[0]
	}
	return f.Cursor.Fill(b, last-f.Cursor.Next())
}

// Cut has records begin new batches. The records are in order. It must be called before the first batch has records.
func (f *Frame) Cut(at []int) { f.cuts = at }
