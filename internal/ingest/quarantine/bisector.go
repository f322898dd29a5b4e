package quarantine

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// failed is a batch on which an operator failed.
type failed struct {
	pipe *streams.Pipeline
	g    *inflight.Batch // the deliveries, which hold memory until they are settled
}

// Bisector searches failed batches for the payloads that cause the failures, one batch at a time.
type Bisector struct {
	queue chan failed
	trier *tester
}

// NewBisector returns a Bisector with a queue for up to limit batches. The deliveries of further batches are given back.
func NewBisector(i Isolation, limit int) *Bisector {
	return &Bisector{queue: make(chan failed, limit), trier: newTester(i)}
}

// Refused takes over a batch that failed with err. If an operator may be the cause, Run will search for the failing payload.
// Otherwise, or if the queue is full, the batch's deliveries are given back.
func (s *Bisector) Refused(pipe *streams.Pipeline, g *inflight.Batch, err error) {
	if OperatorFailed(err) {
		payloads := len(g.Items) // read before the send, because Run may recycle g at once
		select {
		case s.queue <- failed{pipe, g}:
			s.trier.Log.Error("an operator failed on a batch; looking for the payload to blame, once the device has proved to be well", "payloads", payloads, "error", err)
			return
		default:
		}
	}
	s.giveBack(g, err)
	if !streams.Ended(err) {
		s.trier.Log.Error("the device refused a batch; its payloads are delivered again later", "error", err)
	}
}

// Run searches one failed batch after another until done is closed.
func (s *Bisector) Run(done <-chan struct{}, drainCtx context.Context) {
	for {
		select {
		case f := <-s.queue:
			s.search(drainCtx, f)
		case <-done:
			return
		}
	}
}

// search computes a failed batch again, and settles its deliveries.
func (s *Bisector) search(ctx context.Context, f failed) {
	r, rows := s.trier.rerun(f.pipe, f.g), f.g.UnsettledRows()
	err := r.Probe(ctx)
	if err == nil {
		err = r.Compute(ctx, rows)
	}
	if ctx.Err() != nil {
		s.giveBack(f.g, ctx.Err())
		return
	}
	s.trier.collect(r, rows, err)
	s.trier.Ends.StoreLater(ctx, f.g) // some records of its frames may be in batches that are searched later
}

// giveBack gives back the unsettled deliveries of g, and recycles g.
func (s *Bisector) giveBack(g *inflight.Batch, why error) {
	s.trier.giveBack(g, g.UnsettledRows(), why)
	s.trier.Pool.Recycle(g)
}
