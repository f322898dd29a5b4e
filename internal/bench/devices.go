package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/streams"
)

// runDevices measures the balanced kernel on each device alone and on all at once. All do the same work: the
// balance of the first device.
func runDevices(ctx context.Context, targets []*target) error {
	first := targets[0]
	for _, bytes := range first.sizes() {
		m, err := first.balanced(ctx, bytes)
		if err != nil {
			return err
		}
		var rows []*contender
		var flows []*flow
		for _, t := range targets {
			c, f := t.flow(groupOperators, "device", newWords(m, bytes), t.schedule())
			c.base = true
			rows, flows = append(rows, c), append(flows, f)
		}
		all := together(flows, rows[0].row)
		if err := first.race(ctx, append(rows, all)...); err != nil {
			return err
		}
		fastest := rows[0].seconds
		for _, c := range rows[1:] {
			if len(c.seconds) > 0 && median(c.seconds) < median(fastest) {
				fastest = c.seconds
			}
		}
		all.compare(figureOverOne, "x", fastest, all.seconds)
		first.finish(append(rows, all)...)
	}
	return nil
}

// together makes a contender of several flows at once, each on its device: the work is one queue, and who has a
// free batch takes the next piece of it.
func together(flows []*flow, like report.Row) *contender {
	c := &contender{row: like}
	c.row.Name, c.row.Device, c.row.Lanes = "devices", "all", like.Lanes*len(flows)
	batches := 0
	c.measure = func(ctx context.Context, c *contender, seed uint64) error {
		if len(flows) < 2 {
			return errUnable{errors.New("there is one device: name two or more in MILLRACE_DEVICES")}
		}
		r, err := runTogether(ctx, flows, &batches, seed)
		if err != nil {
			return err
		}
		c.row.Batches += r.batches
		c.seconds = append(c.seconds, r.perBatch())
		c.add(figureCores, "", r.cpu.Seconds()/r.elapsed.Seconds())
		return nil
	}
	return c
}

// joined is a pipeline of each of several devices, their batches filled.
type joined struct {
	flows []*flow
	pipes []*streams.Pipeline
	held  [][]*streams.Batch
}

func runTogether(ctx context.Context, flows []*flow, batches *int, seed uint64) (r ran, err error) {
	j := &joined{flows: flows}
	defer func() { err = errors.Join(err, j.close()) }()
	if err := j.open(ctx, seed); err != nil {
		return r, err
	}
	if _, err := j.run(ctx, j.slots(), false); err != nil {
		return r, err
	}
	if *batches == 0 {
		*batches, err = pace(flows[0].t.turn(), j.slots(), func(n int) (time.Duration, error) {
			r, err := j.run(ctx, n, true)
			return r.elapsed, err
		})
		if err != nil {
			return r, err
		}
	}
	if r, err = j.run(ctx, *batches, true); err != nil {
		return r, err
	}
	for i, f := range flows {
		if err := verify(j.held[i], f.load, derive(seed, i)); err != nil {
			return r, fmt.Errorf("on %s: %w", f.t.info.ID, err)
		}
	}
	return r, nil
}

func (j *joined) open(ctx context.Context, seed uint64) error {
	for i, f := range j.flows {
		p, err := streams.New(f.t.dev, f.cfg)
		if err != nil {
			return err
		}
		j.pipes = append(j.pipes, p)
		held, err := fill(ctx, p, f.load, derive(seed, i))
		if err != nil {
			return err
		}
		j.held = append(j.held, held)
	}
	return nil
}

func (j *joined) close() error {
	var errs []error
	for _, p := range j.pipes {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

func (j *joined) slots() (n int) {
	for _, held := range j.held {
		n += len(held)
	}
	return n
}

// run takes n batches, at least as many as there are, through the pipelines. A batch that comes back takes the next
// of what is left, on whichever device that is.
func (j *joined) run(ctx context.Context, n int, again bool) (ran, error) {
	var (
		group   sync.WaitGroup
		left    = newCounter(n - j.slots())
		batches atomic.Int64
		errs    = make([]error, len(j.flows))
	)
	cpu, start := cpuTime(), time.Now()
	for i, f := range j.flows {
		group.Go(func() {
			l := &lap{p: j.pipes[i], left: left, again: again, recent: &f.recent}
			r, err := l.run(ctx, j.held[i], 1)
			batches.Add(int64(r.batches))
			errs[i] = err
		})
	}
	group.Wait()
	r := ran{batches: int(batches.Load()), elapsed: time.Since(start), cpu: cpuTime() - cpu}
	return r, errors.Join(errs...)
}
