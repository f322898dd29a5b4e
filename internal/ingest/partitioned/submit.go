package partitioned

import (
	"context"
	"fmt"
)

// submitter has a lease's inputs computed.
type submitter struct {
	*leaseState
	batches leaseBatches
}

// run packs and submits inputs until there are no more. With reason for caution there is one small batch at a time,
// and the next only when it has been acknowledged.
func (s *submitter) run(ctx context.Context) error {
	defer s.batches.stopPacking()
	for s.batches.await() {
		if ctx.Err() != nil {
			return nil
		}
		if err := s.probeBeforeAlone(ctx); err != nil {
			return err
		}
		cautious := false
		b, err := s.batches.pack(ctx, func(most int) (bound int) {
			cautious, bound = s.caution.bound(most)
			return bound
		})
		if b == nil {
			return err
		}
		if cautious {
			err = s.submitCautiously(ctx, b)
		} else {
			s.submitAmongOthers(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// submitAmongOthers hands a batch to the device, where others may be too.
func (s *submitter) submitAmongOthers(b *leaseBatch) {
	b.group.OnLeave = s.batches.share()
	s.submit(b)
}

// submitCautiously hands over a batch that may kill the worker, and waits until it is acknowledged.
func (s *submitter) submitCautiously(ctx context.Context, b *leaseBatch) error {
	g := b.group
	n, last := len(g.Items), g.Items[len(g.Items)-1].Sequence
	over := make(chan struct{})
	g.Finished = over
	if !s.caution.alone() {
		s.submitAmongOthers(b)
	} else if err := s.computeAlone(ctx, b); err != nil {
		return err
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
	if s.acks.acknowledged() < last || ctx.Err() != nil {
		return nil // it failed, and the lease with it
	}
	return s.caution.relax(ctx, n, s.batches.largest())
}

// probeBeforeAlone has the device prove that it works before a payload runs alone. Otherwise the death of the worker would
// say nothing about the payload. It comes before a batch is taken, so that probes don't wait for each other's batches.
func (s *submitter) probeBeforeAlone(ctx context.Context) error {
	if due, _ := s.caution.bound(1); !due || !s.caution.alone() {
		return nil
	}
	return s.batches.probe(ctx)
}

// computeAlone has a payload computed with nothing else on the device, so that the payload is to blame if the worker dies
// meanwhile. The annotations say so for just that time.
func (s *submitter) computeAlone(ctx context.Context, b *leaseBatch) error {
	defer s.batches.isolate()()
	g := b.group
	g.OnLeave = func() {}
	if err := s.notes.annotate(ctx, map[string]string{annotationAlone: fmt.Sprint(g.Items[0].Sequence)}); err != nil {
		s.batches.discard(b)
		return err
	}
	completed, failed := make(chan struct{}), false
	g.OnComplete = func() { failed = g.Err != nil; close(completed) }
	s.submit(b)
	select {
	case <-completed:
	case <-ctx.Done():
		return nil // the annotation stays: nobody knows what becomes of the payload
	}
	if failed && s.batches.deviceFailed() != nil {
		return nil // see end
	}
	return s.notes.annotate(ctx, map[string]string{annotationAlone: ""})
}

// submit hands a batch to the device, and its group to the settler, which owns it from then on.
func (s *submitter) submit(b *leaseBatch) {
	g := b.group
	g.Completed = make(chan struct{})
	s.batches.submit(b)
	s.order <- g // there is room for every group
}
