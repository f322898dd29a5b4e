package partitioned

import (
	"context"
)

// submitter submits a lease's inputs to the device.
type submitter struct {
	*leaseState
	batches leaseBatches
}

// run packs inputs into batches and submits them, until there are no more inputs. While precaution.bound limits the
// batches, run submits one batch at a time and waits for its acknowledgement.
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
		b, err := s.batches.pack(ctx, func(limit int) (bound int) {
			cautious, bound = s.caution.bound(limit)
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

// submitAmongOthers submits a batch to the device, where other batches may run too.
func (s *submitter) submitAmongOthers(b *leaseBatch) {
	b.group.OnLeave = s.batches.share()
	s.submit(b)
}

// submitCautiously submits a batch that may kill the worker, and waits until it is acknowledged.
func (s *submitter) submitCautiously(ctx context.Context, b *leaseBatch) error {
	g := b.group
	n, last := len(g.Items), uint64(0) // n is 0 if the batch's only frame ends in a later batch
	if n > 0 {
		last = g.Items[n-1].Sequence
	}
	over := make(chan struct{})
	g.Finished = over
	if !s.caution.isAlone() {
		s.submitAmongOthers(b)
	} else if err := s.computeAlone(ctx, b); err != nil {
		return err
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
	if s.acks.acknowledged() < last || ctx.Err() != nil {
		return nil // the batch failed, which ends the lease
	}
	return s.caution.relax(ctx, n, s.batches.largest())
}

// probeBeforeAlone probes the device before a payload runs alone. Otherwise the death of the worker would prove nothing
// about the payload. The probe runs before the submitter reserves a batch, so that probes don't wait for each other's
// batches.
func (s *submitter) probeBeforeAlone(ctx context.Context) error {
	if due, _ := s.caution.bound(1); !due || !s.caution.isAlone() {
		return nil
	}
	return s.batches.probe(ctx)
}

// computeAlone computes a payload with nothing else on the device. If the worker dies during the computation, the payload
// is the cause. An annotation names the payload while it is on the device.
func (s *submitter) computeAlone(ctx context.Context, b *leaseBatch) error {
	defer s.batches.isolate()()
	g := b.group
	g.OnLeave = func() {}
	if err := s.notes.annotate(ctx, map[string]string{annotationAlone: s.caution.trial(g)}); err != nil {
		s.batches.discard(b)
		return err
	}
	completed, failed := make(chan struct{}), false
	g.OnComplete = func() { failed = g.Err != nil; close(completed) }
	s.submit(b)
	select {
	case <-completed:
	case <-ctx.Done():
		return nil // the annotation stays, because the outcome for the payload is unknown
	}
	if failed && s.batches.deviceFailed() != nil {
		return nil // lease.end handles the annotation
	}
	return s.notes.annotate(ctx, map[string]string{annotationAlone: ""})
}

// submit submits a batch to the device, and passes its group to the settler, which then owns it.
func (s *submitter) submit(b *leaseBatch) {
	g := b.group
	g.Completed = make(chan struct{})
	s.batches.submit(b)
	s.order <- g // the channel has space for every group
}
