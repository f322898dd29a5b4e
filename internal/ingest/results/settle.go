package results

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// Sink receives the outcomes of a batch's deliveries. Each delivery mode has one.
type Sink interface {
	// Stored is called with deliveries that may be acknowledged, because their results are stored.
	Stored(ctx context.Context, stored []*inflight.Delivery)

	// Undeliverable is called for the i-th delivery of a batch if it has no result, or one that can never be stored. It becomes a
	// dead letter. An error ends Settle.
	Undeliverable(ctx context.Context, b *inflight.Batch, i int, why Reason, cause error) error

	// Incomplete is called for the i-th delivery of a batch if it is a frame, and another batch could not compute its part. An
	// error ends Settle.
	Incomplete(b *inflight.Batch, i int, cause error) error
}

// Buffers is the memory for settling a batch. It is reused for the next one.
type Buffers struct {
	// Settling is how long the calls of the sink took for the batch that was settled last.
	Settling time.Duration

	records [][]byte // records of one payload, by operator
	body    []byte   // its result before compression
	left    []int    // indices of deliveries that are not settled yet
	stale   []int    // of those, the deliveries to look up
	known   []int    // of those, the deliveries with a stored result
	results []nats.Msg
	msgs    []*nats.Msg          // results to publish, by position in left
	answers []publisher.Answer   // the server's answers to msgs
	stored  []*inflight.Delivery // argument for the sink
	partial partials             // what lookups found of inputs that are not done
	kept    int64                // bytes that the pool counts for these buffers
}

// Tidy releases the last batch's results and deliveries, and bounds the memory that s keeps.
func (s *Buffers) Tidy(p *inflight.Pool) {
	s.clear()
	size := inflight.SizeOf(s.records) + inflight.SizeOf(s.body) + inflight.SizeOf(s.left) + inflight.SizeOf(s.stale) + inflight.SizeOf(s.known) +
		inflight.SizeOf(s.results) + inflight.SizeOf(s.msgs) + inflight.SizeOf(s.answers) + inflight.SizeOf(s.stored)
	if !p.Retain(s.kept, size) {
		s.Free(p)
		return
	}
	s.kept = size
}

// Free releases all memory.
func (s *Buffers) Free(p *inflight.Pool) {
	p.Retain(s.kept, 0)
	*s = Buffers{}
}

func (s *Buffers) clear() {
	clear(s.records)
	clear(s.results)
	clear(s.msgs)
	clear(s.answers)
	clear(s.stored)
}

// reset prepares s for another batch.
func (s *Buffers) reset() { s.Settling, s.left, s.partial = 0, s.left[:0], nil }

// Encode writes the results of a completed batch into b, and into the tables of its frames. The batch's buffers may be released
// afterwards.
func (w *Writer) Encode(b *inflight.Batch, completed *streams.Batch, s *Buffers) {
	b.Bodies.Reserve(len(b.Items) * w.s.Format.Most(w.s.Operators))
	compress, done := w.compressor()
	defer done()
	for row, span := range b.Spans {
		if span.Frame != nil {
			if span.Frame.Records() > 0 {
				span.Frame.Put(completed, row, span.First, span.Rows)
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

// encodeRow encodes the result of the i-th delivery, which is one record, from a completed batch's row. It compresses the result, unless
// compress is nil. A delivery that an operator refused has no result.
func (w *Writer) encodeRow(b *inflight.Batch, i int, completed *streams.Batch, row int, s *Buffers, compress func(dst, src []byte) []byte) {
	if w.refusals.Possible() {
		if reason := w.refusals.Of(completed, row); reason != "" {
			b.Refuse(i, reason)
			b.Bodies.Add(b.Bodies.Data)
			return
		}
	}
	s.records = s.records[:0]
	for op, o := range w.s.Operators {
		stride := o.Stride()
		s.records = append(s.records, completed.Results(op)[row*stride:][:stride])
	}
	bytes := len(b.Items[i].Msg.Data())
	if compress == nil {
		b.Bodies.Add(w.s.Format.Append(b.Bodies.Data, w.s.Operators, bytes, s.records))
		return
	}
	s.body = w.s.Format.Append(s.body[:0], w.s.Operators, bytes, s.records)
	b.Bodies.Add(compress(b.Bodies.Data, s.body))
}

// Settle publishes the results of a batch until each is stored, or its input is given up. It returns an error if ctx ends first,
// if the connection is closed for good, or if the sink cannot give up an input. The rest of b is then not settled.
//
// A result that was not confirmed is published again under the same id, so the stream keeps one copy. While a result stream is
// full, missing or slow, Settle holds the batch. Once no batch is free, the pull stops too.
func (w *Writer) Settle(ctx context.Context, pipe *streams.Pipeline, b *inflight.Batch, s *Buffers, sink Sink) error {
	s.reset()
	s.left = b.AppendUnsettled(s.left)
	if err := w.encodeFrames(ctx, b, s, sink); err != nil {
		return err
	}
	if err := w.giveUpRefused(ctx, b, s, sink); err != nil {
		return err
	}
	for attempt := 1; len(s.left) > 0; attempt++ {
		err := w.settleKnown(ctx, pipe, b, s, sink)
		if err == nil && len(s.left) > 0 {
			var failed error
			if err, failed = w.storeAhead(ctx, b, s, sink); err == nil && failed == nil {
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
		w.s.Log.Warn("results could not be stored and are published again; nothing is acknowledged meanwhile",
			"results", len(s.left), "attempt", attempt, "stream", w.s.ResultStream, "error", err)
		if !w.awaitRetry(ctx, attempt) {
			return ctx.Err()
		}
	}
	return nil
}

// giveUpRefused removes the deliveries that an operator refused from s.left. They become dead letters.
func (w *Writer) giveUpRefused(ctx context.Context, b *inflight.Batch, s *Buffers, sink Sink) (err error) {
	if !w.refusals.Possible() {
		return nil
	}
	s.left = slices.DeleteFunc(s.left, func(i int) bool {
		reason := b.Refusal(i)
		if reason == "" || err != nil {
			return false
		}
		err = sink.Undeliverable(ctx, b, i, OperatorError, errors.New(reason))
		return true
	})
	return err
}

// publish sends every result that is left and waits for the server's answers. It returns the last error.
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
			w.s.Progress()
		}
	}
	return last
}

// result returns the message with the i-th delivery's result. For a frame in several parts it is the last part.
func (w *Writer) result(b *inflight.Batch, i int) nats.Msg {
	d := &b.Items[i]
	if d.Frame != nil {
		return w.part(d, len(d.Frame.Parts)-1)
	}
	body, h := b.Result(i), ResultHeader(d, w.operators)
	w.content.describe(h, false, len(body))
	return nats.Msg{Subject: topology.MapSubject(w.s.ResultPrefix, d.Subject), Header: h, Data: body}
}

// settleAnswered notifies the sink of the deliveries with stored results, and of those with results that can never be stored. It
// keeps the rest in s.left.
func (w *Writer) settleAnswered(ctx context.Context, pipe *streams.Pipeline, b *inflight.Batch, s *Buffers, sink Sink) (err error) {
	start := pipe.Now()
	now := time.Now()
	headroom := b.Headroom(now, w.s.AckWait)
	rest := s.left[:0]
	s.stored = s.stored[:0]
	for n, i := range s.left {
		d := &b.Items[i]
		switch a := s.answers[n]; {
		case a.Err == nil:
			s.stored = append(s.stored, d)
			b.Settle(i)
			w.stored(d)
			w.s.Observer.Settled(outcome(a), len(d.Msg.Data()), b.ResultBytes(i), now.Sub(d.Received), headroom)
			w.observeFrame(d, a)
		case publisher.Unstorable(a.Err) && err == nil:
			err = sink.Undeliverable(ctx, b, i, TooLarge, fmt.Errorf("its result cannot be stored: %w", a.Err))
		default:
			rest = append(rest, i)
		}
	}
	sink.Stored(ctx, s.stored)
	s.left = rest
	s.Settling += pipe.Now() - start
	return err
}

// outcome returns the outcome of an input with a stored result.
func outcome(a publisher.Answer) inflight.Outcome {
	if a.Duplicate {
		return inflight.Duplicate
	}
	return inflight.Published
}

// settleKnown looks up the results that may already be stored, and settles their deliveries if so. The rest stay in s.left and
// may be published.
func (w *Writer) settleKnown(ctx context.Context, pipe *streams.Pipeline, b *inflight.Batch, s *Buffers, sink Sink) error {
	if err := w.probeIDs(ctx, b, s.left); err != nil {
		return err
	}
	s.stale, s.known = s.stale[:0], s.known[:0]
	now := time.Now()
	most := w.clearance.results.publishFor(now)
	for _, i := range s.left {
		if !w.clearance.clear(&b.Items[i], now, most) {
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

// probeIDs checks the ids of the newest results if one of these inputs may have been delivered before.
func (w *Writer) probeIDs(ctx context.Context, b *inflight.Batch, left []int) error {
	for _, i := range left {
		if d := &b.Items[i]; !d.First && d.Cleared.IsZero() {
			return w.clearance.probe(ctx)
		}
	}
	return nil
}
