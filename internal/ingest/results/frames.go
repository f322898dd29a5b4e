package results

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/table"
)

// frameWriter stores the results of frames. It stores the last part of a frame's result after the dead letters of records and the
// earlier parts. A frame is finished once its last part is stored. Each part names its cut, because workers may cut the same
// result differently (adr/0039).
type frameWriter struct{ *Writer }

// encodeFrames waits for the frames that end in b, and encodes their results. It removes frames without a result from s.left, and
// passes them to sink.
func (w frameWriter) encodeFrames(ctx context.Context, b *inflight.Batch, s *Buffers, sink Sink) (err error) {
	s.left = slices.DeleteFunc(s.left, func(i int) bool {
		f := b.Items[i].Frame
		if f == nil || err != nil {
			return false
		}
		if err = f.Await(ctx); ctx.Err() != nil {
			err = ctx.Err()
			return false
		}
		switch {
		case err != nil:
			err = sink.Incomplete(b, i, err)
		case f.Fault() != nil:
			err = sink.Undeliverable(ctx, b, i, reason(f.Fault()), f.Fault())
		case !f.Framed() && f.Table.Status(0).Failed():
			status := f.Table.Status(0)
			err = sink.Undeliverable(ctx, b, i, Reason(status.String()), &operator.RecordError{Operator: f.Table.Operator(0), Text: f.Table.Message(0)})
		default:
			cause := w.encodeFrame(&b.Items[i])
			if cause == nil {
				return false
			}
			err = sink.Undeliverable(ctx, b, i, TooLarge, cause)
		}
		return true
	})
	return err
}

// reason returns the reason for the dead letter of a message that can't be unpacked because of fault.
func reason(fault error) Reason {
	var f *frame.Error
	switch {
	case errors.As(fault, &f):
		return Reason(f.Reason)
	case errors.Is(fault, compression.ErrTooLarge):
		return TooLarge
	}
	return InvalidEncoding
}

// partSpace is the number of bytes reserved for the headers of a part, and for HeaderDeliveries. A redelivery reserves the same
// space, so that it has the same parts. Some parts may already be stored.
const partSpace = 160

// encodeFrame encodes the result of d's frame into parts that the server accepts. A record gets the status too_large if its result
// alone exceeds a message.
func (w frameWriter) encodeFrame(d *inflight.Delivery) (err error) {
	f := d.Frame
	first := *d
	first.First = true // without HeaderDeliveries
	limit := w.size.maxBytes() - headerBytes(w.frameHeader(&first, 1)) - partSpace - w.extra
	compress, done := w.compressor()
	defer done()
	if !f.Framed() {
		return f.EncodeSingle(w.o.Format, compress)
	}
	for {
		var single *table.RecordTooLargeError
		if err := f.EncodeParts(w.o.Format, limit, compress); !errors.As(err, &single) || f.Table.Status(single.Record) != record.OK {
			return err
		}
		f.Mark(single.Record, record.TooLarge)
	}
}

func (w frameWriter) part(d *inflight.Delivery, n int) nats.Msg {
	h := w.frameHeader(d, len(d.Frame.Parts[n].Body))
	if parts := d.Frame.Parts; len(parts) > 1 {
		cut := fmt.Sprintf("%08x", parts[n].Cut)
		h[HeaderPart] = []string{fmt.Sprintf("%d/%d", n+1, len(parts))}
		h[HeaderFirstRecord] = []string{strconv.Itoa(parts[n].From)}
		h[HeaderCut] = []string{cut}
		if n+1 < len(parts) {
			h[jetstream.MsgIDHeader] = []string{partID(d, n+1, cut)}
		}
	}
	return nats.Msg{Subject: topology.MapSubject(w.o.ResultPrefix, d.Subject), Header: h, Data: d.Frame.Parts[n].Body}
}

// frameHeader returns the headers of a frame's result. body is the size of the result's body in bytes.
func (w frameWriter) frameHeader(d *inflight.Delivery, body int) nats.Header {
	h := ResultHeader(d, w.operators)
	if f := d.Frame; f.Framed() {
		h[HeaderRecords] = []string{strconv.Itoa(f.Records())}
	}
	w.content.describe(h, d.Frame.Framed(), body)
	return h
}

// observeFrame notifies the observer of a frame whose result is stored. It skips a redelivered frame if a is a duplicate, because
// an earlier delivery reported that frame.
func (w frameWriter) observeFrame(d *inflight.Delivery, a publisher.Answer) {
	if d.Frame != nil && (d.First || !a.Duplicate) {
		w.o.Observer.Frame(d.Frame.Stats())
	}
}

// storeAhead stores the messages that precede the last parts of frames: the dead letters of records, and the earlier parts of
// results. If one of these messages can't be stored, it passes the frame to sink and removes it from s.left. If retry, a temporary
// error, isn't nil, nothing in s.left may be published yet. failed is an error of the sink.
func (w frameWriter) storeAhead(ctx context.Context, b *inflight.Batch, s *Buffers, sink Sink) (retry, failed error) {
	s.left = slices.DeleteFunc(s.left, func(i int) bool {
		d := &b.Items[i]
		if d.Frame == nil || d.Frame.Ahead || retry != nil || failed != nil {
			return false
		}
		if err := w.storeRecordLetters(ctx, d, &s.partial); err != nil && !w.ends(ctx) {
			failed = sink.Incomplete(b, i, err)
			return true
		} else if err != nil {
			retry = err
			return false
		}
		switch err := w.storeParts(ctx, d, s.partial); {
		case publisher.Unstorable(err):
			failed = sink.Undeliverable(ctx, b, i, TooLarge, errUnstorable(err))
			return true
		case err != nil:
			retry = err
			return false
		}
		d.Frame.Ahead = true
		return false
	})
	return retry, failed
}

// ends reports whether nothing can be stored any more, because ctx has ended or a connection is closed.
func (w frameWriter) ends(ctx context.Context) bool { return ctx.Err() != nil || w.conns.Closed() }

// storeParts stores all parts of a frame's result except the last one, and except parts with ids in known.
func (w frameWriter) storeParts(ctx context.Context, d *inflight.Delivery, known partials) error {
	ctx, cancel := context.WithDeadline(ctx, w.clearance.publishUntil(d, time.Now()))
	defer cancel()
	var msgs []*nats.Msg
	for n := range len(d.Frame.Parts) - 1 {
		if m := w.part(d, n); !known[m.Header.Get(jetstream.MsgIDHeader)] {
			msgs = append(msgs, &m)
		}
	}
	for _, a := range w.again.Publish(ctx, msgs, nil) {
		if a.Err != nil {
			return fmt.Errorf("a part of the result of sequence %d: %w", d.Sequence, a.Err)
		}
	}
	return nil
}

// lettersAtOnce is the maximum number of dead letters that are published together. It bounds the memory for their headers. Their
// bodies take no extra memory.
const lettersAtOnce = 512

// storeRecordLetters stores a dead letter for each failed record of a frame, except dead letters with ids in known.
func (w frameWriter) storeRecordLetters(ctx context.Context, d *inflight.Delivery, known *partials) error {
	var failed []int
	for i := range d.Frame.Records() {
		if d.Frame.Table.Status(i).Failed() {
			failed = append(failed, i)
		}
	}
	for some := range slices.Chunk(failed, lettersAtOnce) {
		letters := make([]*deadLetter, len(some))
		for n, i := range some {
			letters[n] = w.newRecordLetter(d, i)
		}
		if unstored, err := w.publishLetters(ctx, letters, known); err != nil {
			if !w.ends(ctx) {
				w.logUnstoredDeadLetter(d, unstored.why, err)
			}
			return fmt.Errorf("dead letters of %d records from record %d on: %w", len(some), some[0], err)
		}
	}
	return nil
}

// Buffers holds the memory for settling batches, one batch at a time.
type Buffers struct {
	// Settling is the time spent on settling the last batch's deliveries after the server's answers.
	Settling time.Duration

	records [][]byte // values of one payload, indexed by operator
	strings []byte   // memory for values that are byte strings
	body    []byte   // the payload's result before compression
	left    []int    // indices of deliveries that are not settled yet
	stale   []int    // indices in left whose results must be looked up
	known   []int    // indices in stale with a stored result
	results []nats.Msg
	msgs    []*nats.Msg          // pointers into results, in the order of left
	answers []publisher.Answer   // the server's answers to msgs
	stored  []*inflight.Delivery // argument of Sink.Stored
	partial partials             // ids of stored messages of unfinished inputs
	kept    int64                // bytes that the pool counts for these buffers
}

// Tidy releases the last batch's results and deliveries. It also frees the memory of s if p has no space for it.
func (s *Buffers) Tidy(p *inflight.Pool) {
	s.clear()
	size := memory.SizeOf(s.records) + memory.SizeOf(s.strings) + memory.SizeOf(s.body) + memory.SizeOf(s.left) + memory.SizeOf(s.stale) + memory.SizeOf(s.known) +
		memory.SizeOf(s.results) + memory.SizeOf(s.msgs) + memory.SizeOf(s.answers) + memory.SizeOf(s.stored)
	if !p.Keep(&s.kept, size) {
		*s = Buffers{}
	}
}

// Free releases all memory.
func (s *Buffers) Free(p *inflight.Pool) {
	p.Keep(&s.kept, 0)
	*s = Buffers{}
}

func (s *Buffers) clear() {
	clear(s.records)
	clear(s.results)
	clear(s.msgs)
	clear(s.answers)
	clear(s.stored)
}

func (s *Buffers) reset() { s.Settling, s.left, s.partial = 0, s.left[:0], nil }
