package shared

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// settler settles completed batches of one pipeline. Each settler has its own goroutine.
type settler struct {
	pipe     *streams.Pipeline
	pool     *inflight.Pool
	ends     *acknowledger
	bisector *quarantine.Bisector
	free     *inflight.FreeList[*results.Buffers] // one item per settler
}

// run settles batches until done is closed.
func (s *settler) run(done <-chan struct{}, drainCtx context.Context) {
	for {
		select {
		case b := <-s.pipe.Completed():
			buffers := s.free.Take()
			s.settle(drainCtx, b, buffers)
			buffers.Tidy(s.pool)
			s.free.Put(buffers)
		case <-done:
			return
		}
	}
}

// settle settles a completed batch, or passes it to the goroutine that waits for it.
func (s *settler) settle(drainCtx context.Context, b *streams.Batch, buffers *results.Buffers) {
	g := b.Owner.(*inflight.Batch)
	if g.ReturnTo != nil {
		g.ReturnTo <- b // see inflight.Batch.ReturnTo
		return
	}
	if err := b.Err(); err != nil {
		record := g.Describe(b.ReadRecord())
		b.Release()
		g.Report(s.ends.batches, &record)
		s.bisector.Refused(s.pipe, g, err)
		record.Report(s.ends.records)
		return
	}
	s.ends.Finish(drainCtx, s.pipe, g, b, buffers)
	s.pool.Recycle(g)
}
