package shared

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// Finish implements quarantine.Deliveries. If ctx ends, it gives back the inputs without a stored result.
func (a *acknowledger) Finish(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, b *streams.Batch, buffers *results.Buffers) {
	record := g.Describe(b.ReadRecord())
	start := pipe.Now()
	a.judge.CameRight(pipe, g)
	g.StartPublish()
	a.results.Encode(g, b, buffers)
	b.Release() // g has the encoded results now
	err := a.results.Settle(ctx, pipe, g, buffers, a)
	published := pipe.Now()
	if err != nil {
		a.giveBackAll(g, context.Canceled)
	}
	record.Publish = streams.Span{Start: start, End: published - buffers.Settling}
	record.Settle = streams.Span{Start: published - buffers.Settling, End: pipe.Now()}
	record.Report(a.records)
	g.Report(a.batches, &record)
}

// Store implements quarantine.Deliveries. If ctx ends, it gives back the inputs without a stored result.
func (a *acknowledger) Store(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, buffers *results.Buffers) {
	if a.results.Settle(ctx, pipe, g, buffers, a) != nil {
		a.giveBackAll(g, context.Canceled)
	}
}

// StoreLater implements quarantine.Deliveries.
func (a *acknowledger) StoreLater(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch) {
	if len(g.Unsettled()) == 0 {
		a.pool.Recycle(g)
		return
	}
	a.publishing.Go(func() {
		a.Store(ctx, pipe, g, &results.Buffers{})
		a.pool.Recycle(g)
	})
}
