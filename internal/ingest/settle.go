package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// settler brings completed batches to their end: encode, publish, and acknowledge each input once its result
// is stored. Each runs in a goroutine of its own.
type settler struct {
	w    *Worker
	pipe *streams.Pipeline
	*desk
}

// desk is what a settler needs for one batch, with memory that it keeps for the next.
type desk struct {
	records [][]byte // of one payload, by operator
	left    []int    // indices into the group not settled yet
	stale   []int    // of those, what has to be looked up
	known   []int    // of those, what is stored already
	results []nats.Msg
	msgs    []*nats.Msg          // the results, by position in left
	answers []store.Answer       // likewise
	stored  []*inflight.Delivery // the inputs to acknowledge
	acking  time.Duration        // spent on acknowledging the inputs of this batch
	kept    int64                // bytes of memory that it keeps for the next batch; see keep
}

// tidy lets go of the last batch's results and inputs. Who settles next may not come for long.
func (d *desk) tidy() {
	clear(d.records)
	clear(d.results)
	clear(d.msgs)
	clear(d.answers)
	clear(d.stored)
}

// fit bounds what a tidied desk keeps.
func (d *desk) fit(p *inflight.Pool) {
	size := inflight.SizeOf(d.records) + inflight.SizeOf(d.left) + inflight.SizeOf(d.stale) + inflight.SizeOf(d.known) + inflight.SizeOf(d.results) + inflight.SizeOf(d.msgs) + inflight.SizeOf(d.answers) + inflight.SizeOf(d.stored)
	if !p.Retain(d.kept, size) {
		d.forget(p)
		return
	}
	d.kept = size
}

// forget lets a desk's memory go.
func (d *desk) forget(p *inflight.Pool) {
	p.Retain(d.kept, 0)
	*d = desk{}
}

// outcome is what became of an input whose result is stored.
func outcome(a store.Answer) inflight.Outcome {
	if a.Duplicate {
		return inflight.Duplicate
	}
	return inflight.Published
}

// run settles batches until ctx ends, which is after the last one has been settled or is to be given back.
func (s *settler) run(done <-chan struct{}, hard context.Context) {
	for {
		select {
		case b := <-s.pipe.Completed():
			s.desk = s.w.desks.Take() // there are as many as settlers
			s.settle(hard, b)
			s.tidy()
			s.fit(s.w.pool)
			s.w.desks.Put(s.desk)
		case <-done:
			return
		}
	}
}

// settle takes a completed batch over.
func (s *settler) settle(ctx context.Context, b *streams.Batch) {
	g := b.Owner.(*inflight.Batch)
	if g.ReturnTo != nil {
		g.ReturnTo <- b // somebody waits for just this batch
		return
	}
	if err := b.Err(); err != nil {
		record := *b.Record()
		b.Release()
		s.w.tell(g, &record)
		s.w.refused(s.pipe, g, err)
		s.pipe.Report(&record)
		return
	}
	s.finish(ctx, g, b)
	s.w.pool.Recycle(g)
}

// finish publishes the results of a batch and settles every delivery of its group.
func (s *settler) finish(ctx context.Context, g *inflight.Batch, b *streams.Batch) {
	record := *b.Record()
	start := s.pipe.Now()
	s.w.cameRight(s.pipe, g)
	g.StartPublish()
	s.encode(g, b)
	b.Release() // its buffers may be used again: the results are in the group now
	s.publishAll(ctx, g)
	published := s.pipe.Now()
	s.w.nakGroup(g, context.Canceled) // what could not be published before the drain ran out of time
	record.Stages[streams.Publish] = streams.Span{Start: start, End: published - s.acking}
	record.Stages[streams.Settle] = streams.Span{Start: published - s.acking, End: s.pipe.Now()}
	s.pipe.Report(&record)
	s.w.tell(g, &record)
}

// encode writes the result bodies of all payloads into the group.
func (s *settler) encode(g *inflight.Batch, b *streams.Batch) {
	ops := s.w.opts.Operators
	g.Bodies.Reserve(len(g.Items) * s.w.opts.Format.Most(s.w.opts.Operators))
	for row := range g.Items {
		s.records = s.records[:0]
		for i, op := range ops {
			stride := op.Stride()
			s.records = append(s.records, b.Results(i)[row*stride:][:stride])
		}
		g.Bodies.Add(s.w.opts.Format.Append(g.Bodies.Data, ops, len(g.Items[row].Msg.Data()), s.records))
	}
}

// publishAll publishes until every result of the group is stored and its input acknowledged, or ctx ends or the
// connection is closed for good: what is not settled then stays in s.left. A result that was not acknowledged
// is published again under the same id, so the stream keeps one. A result stream that is full, missing or slow
// holds the batch here, and with that, as batches run out, the pull. A result that can never be stored takes
// its input to the dead letters.
func (s *settler) publishAll(ctx context.Context, g *inflight.Batch) {
	s.left = s.left[:0]
	s.acking = 0
	for i := range g.Items {
		s.left = append(s.left, i)
	}
	for attempt := 1; ; attempt++ {
		err := s.settleKnown(ctx, g, func() error { s.settleAnswered(ctx, g); return nil })
		if err == nil && len(s.left) > 0 {
			err = s.publishOnce(ctx, g, attempt)
			s.settleAnswered(ctx, g)
		}
		if len(s.left) == 0 || ctx.Err() != nil || s.w.links.closed() {
			return
		}
		s.w.publishFailed(err, len(s.left), attempt)
		if !s.w.awaitRetry(ctx, attempt) {
			return
		}
	}
}

// publishOnce sends every result that is left and waits for the server's word on each. It returns the last
// error.
func (s *settler) publishOnce(ctx context.Context, g *inflight.Batch, attempt int) (last error) {
	s.tidy() // an attempt before may have had more
	s.results, s.msgs, s.answers = s.results[:0], s.msgs[:0], s.answers[:0]
	for _, i := range s.left {
		d := &g.Items[i]
		s.results = append(s.results, nats.Msg{
			Subject: topology.MapSubject(s.w.opts.ResultPrefix, d.Subject),
			Header:  resultHeader(d, s.w.operators),
			Data:    g.Result(i),
		})
	}
	for n := range s.results {
		s.msgs = append(s.msgs, &s.results[n])
	}
	ctx, cancel := context.WithDeadline(ctx, s.w.clearance.until(g.Items, s.left, time.Now()))
	defer cancel()
	s.answers = s.w.publisher.publishAttempt(ctx, attempt, s.msgs, s.answers)
	for _, a := range s.answers {
		if a.Err != nil {
			last = a.Err
		} else {
			s.w.progressed()
		}
	}
	return last
}

// settleAnswered acknowledges the inputs whose results are stored, gives up those whose results never can be,
// and keeps the rest in left.
func (s *settler) settleAnswered(ctx context.Context, g *inflight.Batch) {
	start := s.pipe.Now()
	now := time.Now()
	headroom := g.Headroom(now, s.w.ackWait)
	rest := s.left[:0]
	s.stored = s.stored[:0]
	for n, i := range s.left {
		d := &g.Items[i]
		switch a := s.answers[n]; {
		case a.Err == nil:
			s.stored = append(s.stored, d)
			g.Settle(i)
			s.w.hasResult(d)
			s.w.observer.Settled(outcome(a), len(d.Msg.Data()), len(g.Result(i)), now.Sub(d.Received), headroom)
		case store.Unstorable(a.Err):
			g.Settle(i)
			s.w.giveUp(ctx, g.HandOver(i), TooLarge, fmt.Errorf("its result cannot be stored: %w", a.Err))
		default:
			rest = append(rest, i)
		}
	}
	s.w.ackAll(ctx, s.stored)
	s.left = rest
	s.acking += s.pipe.Now() - start
}
