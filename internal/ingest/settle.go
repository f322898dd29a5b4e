package ingest

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// settler brings completed batches to their end: encode, publish, and acknowledge each input once its result
// is stored. Each runs in a goroutine of its own.
type settler struct {
	w    *Worker
	pipe *streams.Pipeline
	*results.Buffers
}

// run settles batches until done is closed, which is after the last one has been settled or is to be given back.
func (s *settler) run(done <-chan struct{}, hard context.Context) {
	for {
		select {
		case b := <-s.pipe.Completed():
			s.Buffers = s.w.buffers.Take() // there are as many as settlers
			s.settle(hard, b)
			s.Tidy(s.w.pool)
			s.w.buffers.Put(s.Buffers)
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
		s.w.bisector.Refused(s.pipe, g, err)
		s.pipe.Report(&record)
		return
	}
	s.w.Finish(ctx, s.pipe, g, b, s.Buffers)
	s.w.pool.Recycle(g)
}

// Finish implements quarantine.Deliveries.
func (w *Worker) Finish(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, b *streams.Batch, s *results.Buffers) {
	record := *b.Record()
	start := pipe.Now()
	w.judge.CameRight(pipe, g)
	g.StartPublish()
	w.results.Encode(g, b, s)
	b.Release() // its buffers may be used again: the results are in g now
	err := w.results.Settle(ctx, pipe, g, s, w)
	published := pipe.Now()
	if err != nil {
		w.nakGroup(g, context.Canceled) // what could not be published before the drain ran out of time
	}
	record.Stages[streams.Publish] = streams.Span{Start: start, End: published - s.Settling}
	record.Stages[streams.Settle] = streams.Span{Start: published - s.Settling, End: pipe.Now()}
	pipe.Report(&record)
	w.tell(g, &record)
}

// Stored implements results.Sink.
func (w *Worker) Stored(ctx context.Context, stored []*inflight.Delivery) { w.ackAll(ctx, stored) }

// Undeliverable implements results.Sink.
func (w *Worker) Undeliverable(ctx context.Context, b *inflight.Batch, i int, cause error) error {
	b.Settle(i)
	w.GiveUp(ctx, b.HandOver(i), results.TooLarge, cause)
	return nil
}
