package ingest

import (
	"context"
	"errors"

	"millrace/internal/device"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// trier runs some deliveries in a batch of their own, and looks for the one to blame where an operator fails on them.
// It is used from one goroutine and has one batch on a device at a time, whatever it looks for, so fresh batches go on
// beside it.
type trier struct {
	w      *Worker
	part   *inflight.Batch // the deliveries on the device; it is among the worker's groups, so they are kept alive
	s      settler
	ran    bool // the latest items have come as far as the device
	lone   bool // the item runs alone on a device that has just passed a probe
	deaths int  // how often that was so and no process came back from it, as the consumer's metadata says; -1: nobody knows
}

func (w *Worker) newTrier() *trier {
	t := &trier{w: w, part: w.pool.NewBatch(), s: settler{w: w, Buffers: &results.Buffers{}}}
	t.part.ReturnTo = make(chan *streams.Batch, 1)
	return t
}

// try brings items of g, which one batch can hold, to their end: published, given up, or given back. Where an operator
// fails on them it looks for those to blame. It fails when the device is lost, and with ctx's error; what is not settled
// then has been given back, or is in g or t.part for the end of the worker.
func (t *trier) try(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, items []int) error {
	err := t.run(ctx, pipe, g, items)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case !operatorFailed(err):
		return t.giveBack(ctx, g, items, err)
	}
	return t.blame(ctx, pipe, g, items, err)
}

// operatorFailed says whether err may be a payload's doing: the device is not known to be lost, it is not for want of memory,
// and nobody has stopped waiting for what is on the device still. Whether it is one's doing, probes and other payloads tell.
func operatorFailed(err error) bool {
	return err != nil && !streams.Ended(err) && !errors.Is(err, device.ErrOutOfMemory) && !errors.Is(err, device.ErrNotReady) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// giveBack gives items back that were not processed, and returns err if it is the end of the pipeline. What the device or
// the count of its deliveries says of one that ran alone, see condemned, makes a dead letter of it.
func (t *trier) giveBack(ctx context.Context, g *inflight.Batch, items []int, err error) error {
	for _, i := range items {
		d := &g.Items[i]
		g.Settle(i)
		if len(items) == 1 {
			if why, guilty := t.condemned(d, err); guilty && t.w.deadLetter(ctx, d, why, err) {
				continue
			}
		}
		t.w.giveBack(d, err)
	}
	if streams.Ended(err) {
		return err
	}
	t.w.log.Error("the device refused a batch; its payloads are delivered again later", "payloads", len(items), "error", err)
	return nil
}

// condemned says whether err gives a payload up that ran alone. It broke the device, for the second time: only a loss that
// a kernel may have caused counts. Or the device had no memory for it alone, and it was delivered too often.
func (t *trier) condemned(d *inflight.Delivery, err error) (results.Reason, bool) {
	switch {
	case !t.ran || !t.lone:
		return "", false
	case errors.Is(err, device.ErrKernelFault):
		return results.DeviceFault, t.deaths >= loneRuns-1 || t.deaths < 0 && t.w.levels.guilty(d.Level)
	}
	return results.MaxDeliver, errors.Is(err, device.ErrOutOfMemory) && d.NumDelivered > t.w.limit
}

// run computes items of g in one batch and settles them. With an error they are g's as before, unless ctx has ended:
// then they may be on the device still, and t.part's.
func (t *trier) run(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, items []int) error {
	t.ran = false
	if err := ctx.Err(); err != nil {
		return err // a batch may be free all the same, and t.part's own still on the device
	}
	w := t.w
	b, err := w.pool.Acquire(ctx, pipe)
	if err != nil {
		return err
	}
	t.ran = true
	for _, i := range items {
		d := g.Items[i]
		d.Cost = 0 // it stays g's
		t.part.Pack(b, d)
		g.Settle(i)
	}
	b.Owner = t.part
	if err = b.Submit(streams.ClosedByCount); err == nil {
		select {
		case b = <-t.part.ReturnTo:
			err = b.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err == nil {
		t.s.pipe = pipe
		t.s.finish(ctx, t.part, b)
	} else {
		g.Reclaim(items)
		b.Release()
	}
	w.pool.Finish(t.part)
	t.s.Tidy(w.pool)
	return err
}
