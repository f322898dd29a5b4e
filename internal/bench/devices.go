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

// runDevices measures the balanced kernel on each device alone and on all at once. All devices do the same work: the
// kernel is balanced for the first device.
func runDevices(ctx context.Context, s *Session) error {
	return s.targets[0].eachBalanced(ctx, func(m mix, bytes int) error {
		var rows []*Case
		var flows []*flow
		for _, t := range s.targets {
			c, f := t.flow("device", newWords(m, bytes), t.schedule())
			c.Reference = true
			rows, flows = append(rows, c), append(flows, f)
		}
		all := together(flows, rows[0].Row)
		if err := s.Measure(ctx, append(rows, all)...); err != nil {
			return err
		}
		fastest := rows[0].seconds
		for _, c := range rows[1:] {
			if len(c.seconds) > 0 && median(c.seconds) < median(fastest) {
				fastest = c.seconds
			}
		}
		all.ratio(figureOverOne, "x", fastest, all.seconds)
		s.Report(append(rows, all)...)
		return nil
	})
}

// together makes a case of several flows at once, each on its device. The work is one queue: whichever device has a
// free batch takes the next piece.
func together(flows []*flow, like report.Row) *Case {
	c := &Case{Row: like}
	c.Row.Name, c.Row.Device, c.Row.Lanes = "devices", "all", like.Lanes*len(flows)
	c.Measure = func(ctx context.Context, c *Case, seed uint64) (err error) {
		if len(flows) < 2 {
			return errUnable{errors.New("there is one device: name two or more in MILLRACE_DEVICES")}
		}
		j := &joined{}
		defer func() { err = errors.Join(err, j.close()) }()
		if err := j.open(ctx, flows, seed); err != nil {
			return err
		}
		var r ran
		err = c.timed(flows[0].t.Turn(), j.slots(), func(n int) (took time.Duration, err error) {
			r, err = j.run(ctx, n)
			return r.elapsed, err
		})
		if err != nil {
			return err
		}
		c.Add(FigureCores, "", r.cores())
		for i, f := range flows {
			if err := verify(j.runs[i].held, f.load, derive(seed, i)); err != nil {
				return fmt.Errorf("on %s: %w", f.t.info.ID, err)
			}
		}
		return nil
	}
	return c
}

// joined is one pipeline on each of several devices, with their batches filled.
type joined struct {
	pipes []*streams.Pipeline
	runs  []*batchRun
}

func (j *joined) open(ctx context.Context, flows []*flow, seed uint64) error {
	for i, f := range flows {
		p, err := streams.New(f.t.dev, f.cfg)
		if err != nil {
			return err
		}
		j.pipes = append(j.pipes, p)
		held, err := fill(ctx, p, f.load, derive(seed, i))
		if err != nil {
			return err
		}
		j.runs = append(j.runs, f.batchRun(p, held))
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
	for _, b := range j.runs {
		n += len(b.held)
	}
	return n
}

// run takes n batches, at least as many as there are slots, through the pipelines. A device that gets a batch back takes
// the next one of what is left.
func (j *joined) run(ctx context.Context, n int) (ran, error) {
	var (
		group   sync.WaitGroup
		left    = newCounter(n - j.slots())
		batches atomic.Int64
		errs    = make([]error, len(j.runs))
	)
	cpu, start := CPUTime(), time.Now()
	for i, b := range j.runs {
		group.Go(func() {
			r, err := b.run(ctx, left)
			batches.Add(int64(r.batches))
			errs[i] = err
		})
	}
	group.Wait()
	r := ran{batches: int(batches.Load()), elapsed: time.Since(start), cpu: CPUTime() - cpu}
	return r, errors.Join(errs...)
}
