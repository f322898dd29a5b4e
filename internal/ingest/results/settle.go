package results

import (
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// Encode writes the results of completed into b, and into the tables of its frames. The buffers of completed may be released
// afterwards.
func (w *Writer) Encode(b *inflight.Batch, completed *streams.Batch, s *Buffers) {
	b.Bodies.Reserve(w.maxBodies(b, completed))
	compress, done := w.compressor()
	defer done()
	for row, span := range b.Spans {
		if span.Frame != nil {
			if span.Frame.Records() > 0 {
				span.Frame.Put(completed, row, span.First, span.Rows, w.refused)
			}
			if span.Item >= 0 {
				b.Bodies.Add(b.Bodies.Data) // the frame has the body
			}
			continue
		}
		for i := range span.Rows {
			w.encodeRow(b, span.Item+i, completed, row+i, s, compress)
		}
	}
	b.Collected()
}

// maxBodies returns the maximum total size of the results of b's messages that aren't frames, in bytes.
func (w *Writer) maxBodies(b *inflight.Batch, completed *streams.Batch) int {
	f, ops, n := w.o.Format, w.o.Operators, len(b.Items)
	limit, strings := n*f.MaxBytes(ops, 0), operator.StringBytes(ops, n, completed.Bytes())
	if strings > 0 {
		limit += f.MaxBytes(ops, strings) - f.MaxBytes(ops, 0)
	}
	return limit
}

// encodeRow encodes the result of the i-th delivery, which is one record, from the given row of completed. It compresses the
// result unless compress is nil. A delivery that an operator refused has no result.
func (w *Writer) encodeRow(b *inflight.Batch, i int, completed *streams.Batch, row int, s *Buffers, compress func(dst, src []byte) []byte) {
	if w.refusals.CanRefuse() {
		if found := w.refusals.Find(completed, row); found.Reason != "" {
			w.sawRefusal(found)
			name := w.o.Operators[found.Op].Name()
			b.Refuse(i, &operator.RecordError{Operator: name, Text: operator.RefusalText(name, found.Reason)})
			b.Bodies.Add(b.Bodies.Data)
			return
		}
	}
	s.records, s.strings = s.records[:0], s.strings[:0]
	for op, o := range w.o.Operators {
		s.records = append(s.records, operator.Value(o, completed.Results(op), completed.Offsets(), row, &s.strings))
	}
	bytes := len(b.Items[i].Msg.Data())
	if compress == nil {
		b.Bodies.Add(w.o.Format.Append(b.Bodies.Data, w.o.Operators, bytes, s.records))
		return
	}
	s.body = w.o.Format.Append(s.body[:0], w.o.Operators, bytes, s.records)
	b.Bodies.Add(compress(b.Bodies.Data, s.body))
}

// sawRefusal notifies the observer if the refusal found is an operator's fault.
func (w *Writer) sawRefusal(found inflight.Refused) {
	if found.Fault != "" {
		w.o.Observer.OperatorFault(inflight.OperatorFault{Operator: w.o.Operators[found.Op].Name(), Fault: found.Fault, At: time.Now()})
	}
}

// Settle publishes the results of b until each is stored, or its input is given up. It returns an error if ctx ends, if a
// connection is closed permanently, or if the sink returns an error. After an error, the remaining deliveries of b are not
// settled.
//
// A result that was not confirmed is published again under the same id, so the stream keeps one copy. While the result stream is
// full, missing or slow, Settle doesn't return. Once no batch is free, the pull stops too.
func (w *Writer) Settle(ctx context.Context, pipe *streams.Pipeline, b *inflight.Batch, s *Buffers, sink Sink) error {
	s.reset()
	s.left = b.AppendUnsettled(s.left)
	if err := (frameWriter{w}).encodeFrames(ctx, b, s, sink); err != nil {
		return err
	}
	if err := w.giveUpRefused(ctx, b, s, sink); err != nil {
		return err
	}
	for attempt := 1; len(s.left) > 0; attempt++ {
		err := w.settleKnown(ctx, pipe, b, s, sink)
		if err == nil && len(s.left) > 0 {
			var failed error
			if err, failed = (frameWriter{w}).storeAhead(ctx, b, s, sink); err == nil && failed == nil {
				err = w.publish(ctx, b, s, attempt)
				failed = w.settleAnswered(ctx, pipe, b, s, sink)
			}
			if failed != nil {
				return failed
			}
		}
		switch {
		case len(s.left) == 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case w.conns.Closed():
			return jetstream.ErrConnectionClosed
		}
		w.o.Log.Warn(notStored,
			"results", len(s.left), "attempt", attempt, "stream", w.o.ResultStream, "error", err)
		if !w.awaitRetry(ctx, attempt) {
			return ctx.Err()
		}
	}
	return nil
}

// giveUpRefused removes the deliveries that operators refused from s.left, and passes them to sink.CollectRefused.
func (w *Writer) giveUpRefused(ctx context.Context, b *inflight.Batch, s *Buffers, sink Sink) error {
	if b.RefusedCount() == 0 {
		return nil
	}
	var refused []int
	s.left = slices.DeleteFunc(s.left, func(i int) bool {
		if b.Refusal(i) == nil {
			return false
		}
		refused = append(refused, i)
		return true
	})
	if len(refused) == 0 {
		return nil // all refused deliveries are settled
	}
	return sink.CollectRefused(ctx, b, refused)
}

// publish publishes the results of the deliveries in s.left, and stores the server's answers in s.answers. It returns the last
// error.
func (w *Writer) publish(ctx context.Context, b *inflight.Batch, s *Buffers, attempt int) (last error) {
	s.clear() // an earlier attempt may have had more messages
	s.results, s.msgs, s.answers = s.results[:0], s.msgs[:0], s.answers[:0]
	for _, i := range s.left {
		s.results = append(s.results, w.result(b, i))
	}
	for n := range s.results {
		s.msgs = append(s.msgs, &s.results[n])
	}
	ctx, cancel := context.WithDeadline(ctx, w.clearance.until(b.Items, s.left, time.Now()))
	defer cancel()
	s.answers = w.publishAttempt(ctx, attempt, s.msgs, s.answers)
	for _, a := range s.answers {
		if a.Err != nil {
			last = a.Err
		} else {
			w.o.Progress()
		}
	}
	return last
}

// result returns the message with the i-th delivery's result. For a frame in several parts it is the last part.
func (w *Writer) result(b *inflight.Batch, i int) nats.Msg {
	d := &b.Items[i]
	if d.Frame != nil {
		return frameWriter{w}.part(d, len(d.Frame.Parts)-1)
	}
	body, h := b.Result(i), ResultHeader(d, w.operators)
	w.content.describe(h, false, len(body))
	return nats.Msg{Subject: topology.MapSubject(w.o.ResultPrefix, d.Subject), Header: h, Data: body}
}

// settleAnswered passes deliveries to the sink if their results are stored or can never be stored. It keeps the other deliveries
// in s.left.
func (w *Writer) settleAnswered(ctx context.Context, pipe *streams.Pipeline, b *inflight.Batch, s *Buffers, sink Sink) (err error) {
	start := pipe.Now()
	now := time.Now()
	headroom := b.Headroom(now, w.o.AckWait)
	rest := s.left[:0]
	s.stored = s.stored[:0]
	for n, i := range s.left {
		d := &b.Items[i]
		switch a := s.answers[n]; {
		case a.Err == nil:
			s.stored = append(s.stored, d)
			b.Settle(i)
			w.stored(d)
			w.o.Observer.Settled(outcome(a), len(d.Msg.Data()), b.ResultBytes(i), now.Sub(d.Received), headroom)
			frameWriter{w}.observeFrame(d, a)
		case publisher.Unstorable(a.Err) && err == nil:
			err = sink.Undeliverable(ctx, b, i, TooLarge, errUnstorable(a.Err))
		default:
			rest = append(rest, i)
		}
	}
	sink.Stored(ctx, s.stored)
	s.left = rest
	s.Settling += pipe.Now() - start
	return err
}

func outcome(a publisher.Answer) inflight.Outcome {
	if a.Duplicate {
		return inflight.Duplicate
	}
	return inflight.Published
}

// settleKnown looks up results that may already be stored, and settles the deliveries with stored results. The other deliveries
// stay in s.left, and their results may be published.
func (w *Writer) settleKnown(ctx context.Context, pipe *streams.Pipeline, b *inflight.Batch, s *Buffers, sink Sink) error {
	s.stale, s.known = s.stale[:0], s.known[:0]
	now := time.Now()
	limit := w.clearance.results.publishFor(now)
	for _, i := range s.left {
		if !w.clearance.mayPublishUnchecked(&b.Items[i], now, limit) {
			s.stale = append(s.stale, i)
		}
	}
	if len(s.stale) == 0 {
		return nil
	}
	var err error
	if s.known, err = w.clearance.find(ctx, b.Items, s.stale, s.known, &s.partial); err != nil || len(s.known) == 0 {
		return err
	}
	rest := slices.DeleteFunc(s.left, func(i int) bool {
		_, known := slices.BinarySearch(s.known, i) // s.known is in the order of left
		return known
	})
	s.answers = slices.Repeat([]publisher.Answer{{Duplicate: true}}, len(s.known))
	s.left = s.known
	err = w.settleAnswered(ctx, pipe, b, s, sink)
	s.left = rest
	return err
}
