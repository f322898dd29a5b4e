package plan

import (
	"context"
	"errors"

	"millrace/internal/device/sim"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// course runs batches through a pipeline on a simulated device, as fast as its schedule permits. One goroutine submits
// batches, waits for completions and releases the completed batches.
type course struct {
	cost     sim.Model // cost of a batch, independent of its size
	schedule streams.Schedule
	lanes    int
	batches  int
}

// run runs the course. It returns the records of the batches, in the order of their completion. Each batch carries a
// single byte. The cost model determines the times, so real payloads would only slow down the plan.
func (c course) run(ctx context.Context) (records []streams.Record, err error) {
	dev, err := sim.Open(sim.Options{Cost: c.cost, Kernels: operator.HostKernels()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		return nil, err
	}
	turns := &turnstile{Device: dev, turns: make(chan struct{})}
	p, err := streams.New(turns, streams.Options{
		Lanes: c.lanes, Schedule: c.schedule, BatchBytes: 1, BatchPayloads: 1, ScratchLimit: 1 << 20, Operators: ops,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	submitted := 0
	for len(records) < c.batches {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for submitted < c.batches && submitted-len(records) < p.Slots() {
			if err := submit(ctx, p); err != nil {
				return nil, err
			}
			submitted++
		}
		r, err := await(ctx, turns, p)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

func submit(ctx context.Context, p *streams.Pipeline) error {
	b, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	b.Append([]byte{0})
	if err := b.Submit(streams.ClosedByBytes); err != nil {
		b.Release()
		return err
	}
	return nil
}

// await lets one batch complete and returns its record.
func await(ctx context.Context, turns *turnstile, p *streams.Pipeline) (r streams.Record, err error) {
	if err := turns.let(ctx, p.Over()); err != nil {
		return r, errors.Join(err, p.Err())
	}
	select {
	case b := <-p.Completed():
		defer b.Release()
		return *b.ReadRecord(), b.Err()
	case <-ctx.Done():
		return r, ctx.Err()
	}
}

// turnstile lets the pipeline's goroutine wait for a completion only when the submitting goroutine permits it. The
// clock therefore never advances while the host still has a batch to submit, and a course has the same times in every
// run.
type turnstile struct {
	*sim.Device
	turns chan struct{}
}

// WaitCompletion implements device.Device.
func (t *turnstile) WaitCompletion(ctx context.Context) (uint64, error) {
	select {
	case <-t.turns:
		return t.Device.WaitCompletion(ctx)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// let permits one wait for a completion. It returns an error if over is closed or ctx is done, because no goroutine
// waits for a completion in these cases.
func (t *turnstile) let(ctx context.Context, over <-chan struct{}) error {
	select {
	case t.turns <- struct{}{}:
		return nil
	case <-over:
		return errors.New("plan: the pipeline ended")
	case <-ctx.Done():
		return ctx.Err()
	}
}
