package inflight

import (
	"context"
	"slices"
	"sync/atomic"

	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
	"millrace/internal/table"
)

// Frame is a message that is split into records. It exists from the message's arrival until its result is stored. Its
// records may be in several batches, and the last of these batches has the delivery in Items. Each batch writes the
// results of its records into Table.
type Frame struct {
	Unpacked
	Parts []table.Part // encoded results: one body, or several
	// StoredApart is the sequence of the whole message in the dead-letter stream, if dead letters of records refer to it.
	// Otherwise it is 0.
	StoredApart uint64

	operators []operator.Operator
	refusals  Refusals
	d         Delivery // the message, without the memory that it holds
	cuts      []int    // records that must begin a new batch, in order

	missing atomic.Int32 // number of batches whose results are missing, plus 1 until all records are packed
	over    atomic.Bool
	done    chan struct{} // closed when no result is missing, or err is set
	err     error
}

// Await waits until no result is missing. It returns an error if some results can't be computed, or if ctx ends first.
func (f *Frame) Await(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isUnused reports whether no batch uses the frame.
func (f *Frame) isUnused() bool { return isOver(f.done) && f.missing.Load() == 0 }

// isOver reports whether a channel is closed.
func isOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Fail makes Await return err, because some results can't be computed. Only the first call has an effect. The caller of
// Await may then settle the frame.
func (f *Frame) Fail(err error) {
	if f.over.CompareAndSwap(false, true) {
		f.err = err
		close(f.done)
	}
}

// settled records that one batch has written its results, or that all records are packed. Once no result is missing,
// Await returns.
func (f *Frame) settled() {
	if f.missing.Add(-1) == 0 {
		f.Fail(nil)
	}
}

// Put copies the results of a run of records into Table. The records are the rows of a completed batch from row on. Put
// marks each record that an operator refused, and passes the refusal to refused, which may be nil. It ignores refusals
// of records that already have a status, because their rows are empty.
func (f *Frame) Put(completed *streams.Batch, row, first, records int, refused func(Refused)) {
	if f.refusals.CanRefuse() {
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
		stride := operator.KernelOf(o).Stride()
		results := completed.Results(op)
		f.Table.Put(op, first, results[row*stride:][:records*stride])
		f.Table.PutStrings(op, first, records, results, completed.Offsets(), row)
	}
}

// payload returns record i as the device receives it. A record that can't be computed is empty.
func (f *Frame) payload(i int) []byte {
	if f.Records() == 0 || f.Table.Status(i) != record.OK {
		return nil
	}
	return f.Record(i)
}

// Blame records the operator that failed on record i, if err names one.
func (f *Frame) Blame(i int, err error) {
	if name := operator.ToBlame(err); name != "" {
		f.Table.Blame(i, name)
	}
}

// EncodeParts encodes the results in t into bodies of at most limit bytes, and compresses each body with compress. t is Table or a
// selection of it. compress may be nil. See table.Table.Parts for errors.
func (f *Frame) EncodeParts(t *table.Table, format operator.Format, limit int, compress func(dst, src []byte) []byte) (err error) {
	f.Encoded, f.Parts, err = t.Parts(f.Encoded[:0], format, limit, compress)
	return err
}

// EncodeSingle encodes the result in t of a message that is one record. A selection without the record has an empty body.
func (f *Frame) EncodeSingle(t *table.Table, format operator.Format, compress func(dst, src []byte) []byte) error {
	f.Encoded = f.Encoded[:0]
	if t.Records() > 0 {
		f.Encoded = t.AppendSingle(f.Encoded, format)
	}
	body := f.Encoded
	if compress != nil && len(body) > 0 {
		body = compress(nil, f.Encoded)
	}
	f.Parts = append(f.Parts[:0], table.Part{To: t.Records(), Body: body})
	return nil
}

// ResultBytes returns the number of bytes of the encoded parts.
func (f *Frame) ResultBytes() (bytes int) {
	for _, part := range f.Parts {
		bytes += len(part.Body)
	}
	return bytes
}

// Stats returns the statistics of the frame. The result must be encoded.
func (f *Frame) Stats() FrameStats {
	return FrameStats{
		Framed: f.Framed(), Records: f.Table.Count(), Parts: len(f.Parts), Compressed: f.Compressed, Decompressed: f.Decompressed,
		Decompressing: f.Decompressing, Splitting: f.Splitting, LeftOut: slices.Clone(f.LeftOut),
	}
}

// pack appends records to b until b is full, up to the next cut or the end of the frame. It returns the number of
// appended rows. A frame without records has one empty row, because the device accepts no batch without rows.
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

// Cut makes each record in at begin a new batch. at contains increasing indices. Call Cut before any record is packed.
func (f *Frame) Cut(at []int) { f.cuts = at }
