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
	m    *sharedMode
	pipe *streams.Pipeline
	*results.Buffers
}

// run settles batches until done is closed.
func (s *settler) run(done <-chan struct{}, hard context.Context) {
	for {
		select {
		case b := <-s.pipe.Completed():
			s.Buffers = s.m.buffers.Take() // there are as many as settlers
			s.settle(hard, b)
			s.Tidy(s.m.s.Pool)
			s.m.buffers.Put(s.Buffers)
		case <-done:
			return
		}
	}
}

// settle settles a completed batch, or passes it to the goroutine that waits for just this batch.
func (s *settler) settle(ctx context.Context, b *streams.Batch) {
	g := b.Owner.(*inflight.Batch)
	if g.ReturnTo != nil {
		g.ReturnTo <- b // see inflight.Batch
		return
	}
	if err := b.Err(); err != nil {
		record := inflight.Record{Record: *b.ReadRecord()}
		b.Release()
		g.Report(s.m.ends.batches, &record)
		s.m.bisector.Refused(s.pipe, g, err)
		record.Report(s.m.s.Records)
		return
	}
	s.m.ends.Finish(ctx, s.pipe, g, b, s.Buffers)
	s.m.s.Pool.Recycle(g)
}

// Finish implements quarantine.Deliveries.
func (a *acknowledger) Finish(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, b *streams.Batch, s *results.Buffers) {
	record := inflight.Record{Record: *b.ReadRecord()}
	start := pipe.Now()
	a.judge.CameRight(pipe, g)
	g.StartPublish()
	a.results.Encode(g, b, s)
	b.Release() // the results are in g now
	err := a.results.Settle(ctx, pipe, g, s, a)
	published := pipe.Now()
	if err != nil {
		a.giveBackAll(g, context.Canceled) // what could not be published before the drain ended
	}
	record.Publish = streams.Span{Start: start, End: published - s.Settling}
	record.Settle = streams.Span{Start: published - s.Settling, End: pipe.Now()}
	record.Report(a.records)
	g.Report(a.batches, &record)
}
