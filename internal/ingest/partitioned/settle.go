package partitioned

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// settler stores the results of a lease's batches and acknowledges its inputs.
type settler struct {
	*leaseState
	batches leaseBatches
}

// run publishes the results of the batches in stream order, and acknowledges each batch with one message. It returns
// when order is closed. After a failure, it publishes no further batches, and the server redelivers their inputs to the
// next lease.
func (s *settler) run(drainCtx context.Context) {
	defer s.batches.stopPublishing()
	broken := false
	for g := range s.order {
		select {
		case <-g.Completed:
		case <-drainCtx.Done():
			broken = true // the batch is still on the device and uses g
			continue
		}
		if !broken {
			if err := s.settle(drainCtx, g); err != nil {
				s.fail(err)
				broken = true
			}
		}
		over := g.Finished
		s.batches.recycle(g)
		if over != nil {
			close(over)
		}
	}
}

func (s *settler) settle(drainCtx context.Context, g *inflight.Batch) error {
	failed := g.Err != nil
	if failed {
		if err := s.batches.rescue(drainCtx, g); err != nil {
			return err
		}
	}
	start := s.batches.now()
	if err := s.batches.publish(drainCtx, g); err != nil {
		return err
	}
	published := s.batches.now()
	err := s.acks.acknowledge(drainCtx, g)
	g.Record.Publish = streams.Span{Start: start, End: published}
	g.Record.Settle = streams.Span{Start: published, End: s.batches.now()}
	if !failed { // after a failure, the batch has already been reported
		s.batches.report(g)
	}
	return err
}
