package inflight

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
	"millrace/internal/table"
)

// Frame is a message that is split into records, from its arrival until its result is stored. Its records may be in several
// batches, of which the last has the delivery among its Items. Every batch writes its records' results into Table.
type Frame struct {
	Table table.Table  // results of the records
	Parts []table.Part // encoded results: one body, or several
	Ahead bool         // whether everything that is stored before the last part is stored

	encoded []byte // the bodies of Parts

	u *unpacker
	d Delivery // the message, without the memory that it holds

	opening sync.Mutex   // guards the fields up to fault until the frame is opened
	opened  bool         // whether the message is unpacked
	users   atomic.Int32 // goroutines that unpack it ahead, or record that a batch has its results
	cost    int64        // bytes of memory that the frame takes
	body    []byte       // the decompressed body; unused if the message was not compressed
	split   frame.Frame
	cursor  frame.Cursor
	packed  int   // records that batches have
	cuts    []int // records, in order, that must begin a new batch
	fault   error // why the message can't be unpacked

	compressed               bool          // whether the message was compressed
	unpacked                 int           // bytes of the decompressed body
	decompressing, splitting time.Duration // time that unpacking took

	missing atomic.Int32 // batches with records whose results are missing, and one until all records are packed
	over    sync.Once
	done    chan struct{} // closed when no result is missing, or err is set
	err     error
}

// Records returns the number of records. It is 0 if Fault is not nil.
func (f *Frame) Records() int {
	if f.fault != nil {
		return 0
	}
	return f.split.Records()
}

// Framed reports whether the message is a frame. Otherwise its body is one record, which was compressed.
func (f *Frame) Framed() bool { return f.split.Framed() }

// Record returns the i-th record.
func (f *Frame) Record(i int) []byte { return f.split.Record(i) }

// Fault returns why the message can't be split into records, as a *frame.Error or *compression.Error, or nil.
func (f *Frame) Fault() error { return f.fault }

// Await waits until no result is missing, and returns nil. It returns an error if results will stay missing, or if ctx ends first.
func (f *Frame) Await(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Fail records that results will stay missing because of err.
func (f *Frame) Fail(err error) {
	f.over.Do(func() {
		f.err = err
		close(f.done)
	})
}

// Mark records how the processing of a record ended that has no results.
func (f *Frame) Mark(i int, s record.Status) { f.Table.SetStatus(i, s) }

// Exclude marks a record before the first batch has records. No batch gets its bytes.
func (f *Frame) Exclude(i int, s record.Status) {
	f.split.Exclude(i, s)
	f.Mark(i, s)
}

// Put stores the results of a run of records, from a completed batch's rows from row on.
func (f *Frame) Put(completed *streams.Batch, row, first, records int) {
	for op, o := range f.u.costs.operators {
		stride := o.Stride()
		f.Table.Put(op, first, completed.Results(op)[row*stride:][:records*stride])
	}
}

// EncodeParts encodes the results into bodies of at most limit bytes, each compressed by compress unless that is nil. See
// table.Table.Parts for errors.
func (f *Frame) EncodeParts(format operator.Format, limit int, compress func(dst, src []byte) []byte) (err error) {
	f.encoded, f.Parts, err = f.Table.Parts(f.encoded[:0], format, limit, compress)
	return err
}

// EncodeSingle encodes the result of a message that is one record.
func (f *Frame) EncodeSingle(format operator.Format, compress func(dst, src []byte) []byte) error {
	f.encoded = f.Table.AppendSingle(f.encoded[:0], format)
	body := f.encoded
	if compress != nil {
		body = compress(nil, f.encoded)
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
	s := FrameStats{
		Framed: f.Framed(), Records: f.Table.Count(), Parts: len(f.Parts), Decompressing: f.decompressing, Splitting: f.splitting,
	}
	if f.compressed {
		s.Compressed, s.Decompressed = len(f.d.Msg.Data()), f.unpacked
	}
	return s
}

// settled records that one of the frame's batches has its results, or that all records are packed. As soon as no result is missing,
// the goroutine that waits for the results may end the frame. users keeps the frame from another message until settled returns.
func (f *Frame) settled() {
	f.users.Add(1)
	defer f.users.Add(-1)
	if f.missing.Add(-1) == 0 {
		f.Fail(nil)
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
	most := f.Records()
	if len(f.cuts) > 0 {
		most = f.cuts[0] - f.packed
	}
	n := f.cursor.Fill(b, most)
	f.packed += n
	if len(f.cuts) > 0 && f.packed == f.cuts[0] {
		f.cuts = f.cuts[1:]
	}
	return n
}

// Cut has records begin new batches. The records are in order. It must be called before the first batch has records.
func (f *Frame) Cut(at []int) { f.cuts = at }

// ended reports whether batches have all records.
func (f *Frame) ended() bool { return f.packed == f.Records() }
