package shared

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/streams"
)

// submitter fills batches of one pipeline and submits them. Several goroutines may run it.
type submitter struct {
	pool     *inflight.Pool
	batcher  *inflight.Batcher
	bisector *quarantine.Bisector
}

// run fills and submits batches until there are no more deliveries, drainCtx is done, or the pipeline ends. It returns
// an error only if the pipeline has ended.
func (s *submitter) run(drainCtx context.Context) error {
	for {
		g, err := s.batcher.Reserve(drainCtx)
		switch {
		case err == nil:
		case drainCtx.Err() != nil:
			return nil
		default:
			return err
		}
		b, why, err := s.batcher.Next(g)
		if b == nil {
			return err
		}
		if err := s.submit(b, g, why); err != nil {
			return err
		}
	}
}

// submit submits a filled batch. If the device refuses the batch, submit passes it to the bisector. It returns an error
// only if the pipeline has ended.
func (s *submitter) submit(b *streams.Batch, g *inflight.Batch, why streams.CloseReason) error {
	err := s.pool.Submit(b, g, s.batcher.Window, why)
	if err == nil {
		return nil
	}
	b.Release()
	s.bisector.Refused(s.batcher.Pipe, g, err)
	if streams.Ended(err) {
		return err
	}
	return nil
}
