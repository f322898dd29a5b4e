package quarantine

import (
	"context"
	"errors"
	"log/slog"

	"millrace/internal/device"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// Deliveries is how deliveries end that are tried in batches of their own. Package shared implements it.
type Deliveries interface {
	// Finish publishes the results of a completed batch and settles every delivery of it.
	Finish(ctx context.Context, pipe *streams.Pipeline, b *inflight.Batch, completed *streams.Batch, s *results.Buffers)

	// GiveBack has the server deliver d again: at once, or after a while, as why demands.
	GiveBack(d *inflight.Delivery, why error)

	// GiveUp takes d over and makes a dead letter of it. It waits only for room.
	GiveUp(ctx context.Context, d inflight.Delivery, why results.Reason, cause error)

	// DeadLetter makes a dead letter of d. It reports false, and has settled nothing, if that could not be stored.
	DeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) bool
}

// Isolation is what trying deliveries apart from others needs.
type Isolation struct {
	Pool     *inflight.Pool
	Judge    *Judge
	Ends     Deliveries
	Attempts *Attempts
	Levels   Levels
	Limit    int // deliveries of a payload before it is tried alone
	Log      *slog.Logger
}

// tester runs some deliveries in a batch of their own, and looks for the one to blame where an operator fails on them.
// It is used from one goroutine and has one batch on a device at a time, whatever it looks for, so fresh batches go on
// beside it.
type tester struct {
	Isolation
	part    *inflight.Batch // the deliveries on the device; it is one of the pool's, so they are kept alive
	buffers results.Buffers
	ran     bool // the latest items have come as far as the device
	lone    bool // the item runs alone on a device that has just passed a probe
	deaths  int  // how often that was so and no process came back from it, as the consumer's metadata says; -1: nobody knows
}

func newTester(i Isolation) *tester {
	t := &tester{Isolation: i, part: i.Pool.NewBatch()}
	t.part.ReturnTo = make(chan *streams.Batch, 1)
	return t
}

// try brings items of g, which one batch can hold, to their end: published, given up, or given back. Where an operator
// fails on them it looks for those to blame. It fails when the device is lost, and with ctx's error; what is not settled
// then has been given back, or is in g or t.part for the end of the worker.
func (t *tester) try(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, items []int) error {
	err := t.run(ctx, pipe, g, items)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case !OperatorFailed(err):
		return t.giveBack(ctx, g, items, err)
	}
	return t.blame(ctx, pipe, g, items, err)
}

// OperatorFailed says whether err may be a payload's doing: the device is not known to be lost, it is not for want of memory,
// and nobody has stopped waiting for what is on the device still. Whether it is one's doing, probes and other payloads tell.
func OperatorFailed(err error) bool {
	return err != nil && !streams.Ended(err) && !errors.Is(err, device.ErrOutOfMemory) && !errors.Is(err, device.ErrNotReady) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// giveBack gives items back that were not processed, and returns err if it is the end of the pipeline. What the device or
// the count of its deliveries says of one that ran alone, see condemned, makes a dead letter of it.
func (t *tester) giveBack(ctx context.Context, g *inflight.Batch, items []int, err error) error {
	for _, i := range items {
		d := &g.Items[i]
		g.Settle(i)
		if len(items) == 1 {
			if why, guilty := t.condemned(d, err); guilty && t.Ends.DeadLetter(ctx, d, why, err) {
				continue
			}
		}
		t.Ends.GiveBack(d, err)
	}
	if streams.Ended(err) {
		return err
	}
	t.Log.Error("the device refused a batch; its payloads are delivered again later", "payloads", len(items), "error", err)
	return nil
}

// condemned says whether err gives a payload up that ran alone. It broke the device, for the second time: only a loss that
// a kernel may have caused counts. Or the device had no memory for it alone, and it was delivered too often.
func (t *tester) condemned(d *inflight.Delivery, err error) (results.Reason, bool) {
	switch {
	case !t.ran || !t.lone:
		return "", false
	case errors.Is(err, device.ErrKernelFault):
		return results.DeviceFault, t.deaths >= LoneRuns-1 || t.deaths < 0 && t.Levels.guilty(d.Level)
	}
	return results.MaxDeliver, errors.Is(err, device.ErrOutOfMemory) && d.NumDelivered > t.Limit
}

// run computes items of g in one batch and settles them. With an error they are g's as before, unless ctx has ended:
// then they may be on the device still, and t.part's.
func (t *tester) run(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, items []int) error {
	t.ran = false
	if err := ctx.Err(); err != nil {
		return err // a batch may be free all the same, and t.part's own still on the device
	}
	b, err := t.Pool.Acquire(ctx, pipe)
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
		t.Ends.Finish(ctx, pipe, t.part, b, &t.buffers)
	} else {
		g.Reclaim(items)
		b.Release()
	}
	t.Pool.Finish(t.part)
	t.buffers.Tidy(t.Pool)
	return err
}
