package partitioned

import (
	"context"
	"fmt"
)

// fillBatches packs and submits inputs until there are no more. With reason for caution there is one small batch at a time,
// and the next only when it has been acknowledged.
func (l *lease) fillBatches(ctx context.Context) error {
	defer l.batches.stopPacking()
	for l.batches.await() {
		if ctx.Err() != nil {
			return nil
		}
		if err := l.probeBeforeAlone(ctx); err != nil {
			return err
		}
		cautious := false
		b, err := l.batches.pack(ctx, func(most int) (bound int) {
			cautious, bound = l.cautious(most)
			return bound
		})
		if b == nil {
			return err
		}
		if cautious {
			err = l.submitCautiously(ctx, b)
		} else {
			l.submitAmongOthers(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cautious reports whether there is reason for caution, and how many of most payloads the next batch may then have.
func (l *lease) cautious(most int) (due bool, bound int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.caution.Due(l.ackedUpTo) {
		return false, most
	}
	return true, l.caution.BatchPayloads(most)
}

// submitAmongOthers hands a batch to the device, where others may be too.
func (l *lease) submitAmongOthers(b *leaseBatch) {
	b.group.OnLeave = l.batches.share()
	l.submit(b)
}

// submitCautiously hands over a batch that may kill the worker, and waits until it is acknowledged.
func (l *lease) submitCautiously(ctx context.Context, b *leaseBatch) error {
	g := b.group
	n, last := len(g.Items), g.Items[len(g.Items)-1].Sequence
	over := make(chan struct{})
	g.Finished = over
	l.mu.Lock()
	alone := l.caution.Alone()
	l.mu.Unlock()
	if !alone {
		l.submitAmongOthers(b)
	} else if err := l.computeAlone(ctx, b); err != nil {
		return err
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
	l.mu.Lock()
	acknowledged := l.ackedUpTo >= last
	l.mu.Unlock()
	if !acknowledged || ctx.Err() != nil {
		return nil // it failed, and the lease with it
	}
	return l.relax(ctx, n)
}

// probeBeforeAlone has the device prove that it works before a payload runs alone. Otherwise the death of the worker would
// say nothing about the payload. It comes before a batch is taken, so that probes don't wait for each other's batches.
func (l *lease) probeBeforeAlone(ctx context.Context) error {
	l.mu.Lock()
	alone := l.caution.Due(l.ackedUpTo) && l.caution.Alone()
	l.mu.Unlock()
	if !alone {
		return nil
	}
	return l.batches.probe(ctx)
}

// computeAlone has a payload computed with nothing else on the device, so that the payload is to blame if the worker dies
// meanwhile. The annotations say so for just that time.
func (l *lease) computeAlone(ctx context.Context, b *leaseBatch) error {
	defer l.batches.isolate()()
	g := b.group
	g.OnLeave = func() {}
	if err := l.annotate(ctx, map[string]string{annotationAlone: fmt.Sprint(g.Items[0].Sequence)}); err != nil {
		l.batches.discard(b)
		return err
	}
	completed, failed := make(chan struct{}), false
	g.OnComplete = func() { failed = g.Err != nil; close(completed) }
	l.submit(b)
	select {
	case <-completed:
	case <-ctx.Done():
		return nil // the annotation stays: nobody knows what becomes of the payload
	}
	if failed && l.batches.deviceFailed() != nil {
		return nil // see end
	}
	return l.annotate(ctx, map[string]string{annotationAlone: ""})
}

// submit hands a batch to the device, and its group to settleInOrder, which owns it from then on.
func (l *lease) submit(b *leaseBatch) {
	g := b.group
	g.Completed = make(chan struct{})
	l.batches.submit(b)
	l.order <- g // there is room for every group
}
