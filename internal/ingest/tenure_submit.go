package ingest

import (
	"context"
	"fmt"

	"millrace/internal/streams"
)

// submitAmongOthers hands a batch to the device, where others may be too.
func (t *tenure) submitAmongOthers(b *streams.Batch, g *group, why streams.CloseReason) error {
	gate := t.e.gates[t.pipe]
	gate.RLock()
	g.leave = gate.RUnlock
	return t.submit(b, g, why)
}

// submitCarefully hands over a batch that may be a worker's death, and waits until it is acknowledged.
func (t *tenure) submitCarefully(ctx context.Context, b *streams.Batch, g *group, why streams.CloseReason) error {
	n, last := len(g.items), g.items[len(g.items)-1].sequence
	over := make(chan struct{})
	g.over = over
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

// computeAlone has a payload computed with nothing else on the device, so that it is to blame if that is the death of the
// worker; the consumer's metadata says so for just that time.
func (t *tenure) computeAlone(ctx context.Context, b *streams.Batch, g *group, why streams.CloseReason) error {
	gate := t.e.gates[t.pipe]
	gate.Lock()
	defer gate.Unlock()
	g.leave = func() {}
	if err := t.mark(ctx, map[string]string{markAlone: fmt.Sprint(g.items[0].sequence)}); err != nil {
		b.Release()
		t.w.recycle(g)
		return err
	}
	completed, failed := make(chan struct{}), false
	g.done = func() { failed = g.failed != nil; close(completed) }
	if err := t.submit(b, g, why); err != nil {
		return err
	}
	select {
	case <-completed:
	case <-ctx.Done():
		return nil // the mark stays: nobody knows what becomes of it
	}
	if failed {
		return nil
	}
	return t.mark(ctx, map[string]string{markAlone: ""})
}

// submit hands a batch to the device, and its group to those who settle in order. The group is no more the caller's.
func (t *tenure) submit(b *streams.Batch, g *group, why streams.CloseReason) error {
	g.completed = make(chan struct{})
	t.w.flying[t.pipe][b.Slot()] = g
	t.w.countPayloads(g, b)
	g.keep(t.pace)
	leave := g.leave
	if err := b.Submit(why); err != nil {
		leave()
		b.Release()
		t.w.recycle(g)
		t.blameOn(err)
		return fmt.Errorf("the device refused a batch: %w", err)
	}
	t.order <- g // there is room for every group
	return nil
}
