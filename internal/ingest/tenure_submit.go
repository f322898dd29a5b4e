package ingest

import (
	"context"
	"fmt"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// submitAmongOthers hands a batch to the device, where others may be too.
func (t *tenure) submitAmongOthers(b *streams.Batch, g *inflight.Batch, why streams.CloseReason) error {
	gate := t.e.gates[t.pipe]
	gate.RLock()
	g.OnLeave = gate.RUnlock
	return t.submit(b, g, why)
}

// submitCarefully hands over a batch that may be a worker's death, and waits until it is acknowledged.
func (t *tenure) submitCarefully(ctx context.Context, b *streams.Batch, g *inflight.Batch, why streams.CloseReason) error {
	n, last := len(g.Items), g.Items[len(g.Items)-1].Sequence
	over := make(chan struct{})
	g.Finished = over
	t.mu.Lock()
	alone := t.caution.Alone()
	t.mu.Unlock()
	var err error
	if alone {
		err = t.computeAlone(ctx, b, g, why)
	} else {
		err = t.submitAmongOthers(b, g, why)
	}
	if err != nil {
		return err
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
	t.mu.Lock()
	acknowledged := t.ackedUpTo >= last
	t.mu.Unlock()
	if !acknowledged || ctx.Err() != nil {
		return nil // it failed, and the tenure with it
	}
	return t.relax(ctx, n)
}

// probeBeforeAlone has the device prove that it is well before a payload runs alone: only then does a death say anything
// about the payload. It comes before a batch is taken, so that probes do not wait for each other's.
func (t *tenure) probeBeforeAlone(ctx context.Context) error {
	t.mu.Lock()
	alone := t.caution.Due(t.ackedUpTo) && t.caution.Alone()
	t.mu.Unlock()
	if !alone {
		return nil
	}
	return t.pipe.ProbeUnder(ctx, t.e.gates[t.pipe].RLocker())
}

// computeAlone has a payload computed with nothing else on the device, so that it is to blame if that is the death of the
// worker; the consumer's metadata says so for just that time.
func (t *tenure) computeAlone(ctx context.Context, b *streams.Batch, g *inflight.Batch, why streams.CloseReason) error {
	gate := t.e.gates[t.pipe]
	gate.Lock()
	defer gate.Unlock()
	g.OnLeave = func() {}
	if err := t.mark(ctx, map[string]string{markAlone: fmt.Sprint(g.Items[0].Sequence)}); err != nil {
		b.Release()
		t.w.pool.Recycle(g)
		return err
	}
	completed, failed := make(chan struct{}), false
	g.OnComplete = func() { failed = g.Err != nil; close(completed) }
	if err := t.submit(b, g, why); err != nil {
		return err
	}
	select {
	case <-completed:
	case <-ctx.Done():
		return nil // the mark stays: nobody knows what becomes of it
	}
	if failed && t.pipe.Err() != nil {
		return nil // see end
	}
	return t.mark(ctx, map[string]string{markAlone: ""})
}

// submit hands a batch to the device, and its group to those who settle in order. The group is no more the caller's.
func (t *tenure) submit(b *streams.Batch, g *inflight.Batch, why streams.CloseReason) error {
	g.Completed = make(chan struct{})
	if err := t.w.pool.Submit(b, g, t.pace, why); err != nil {
		record := *b.Record()
		b.Release()
		g.Complete(record, err) // who settles in order looks for the payload to blame
	}
	t.order <- g // there is room for every group
	return nil
}
