package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"millrace/internal/device"
	"millrace/internal/streams"
)

// flow measures a pipeline that runs without pause over batches that are filled once a round, before the clock.
type flow struct {
	t           *target
	cfg         streams.Config
	load        load
	drivers     int // goroutines that submit
	locked      bool
	quiet       bool // no part of the trace
	kernelAlone bool // the round's median of the kernels' time is a figure

	// double changes the device that the pipeline runs on in what the row is about; nil for nothing.
	double func(device.Device) device.Device

	batches int // a round; 0 until the first round has found it

	// figures adds what is particular to a row, from what the measured lap took and what the pipeline counted
	// during it; nil for nothing.
	figures func(c *contender, r ran, before, after streams.Stats)

	recent recent
}

// defaultDrivers is how many goroutines submit. CUDA takes one call at a time: a second one mostly waits, and spins as
// it does.
const defaultDrivers = 1

// schedule is the worker's on this device.
func (t *target) schedule() streams.Schedule {
	s := t.Pipeline(t.info, nil).Schedule
	if s.Buffers == 0 {
		return streams.Overlapped
	}
	return s
}

// inLanes is the worker's schedule with one buffer in each of n lanes.
func (t *target) inLanes(n int) streams.Schedule {
	s := t.schedule()
	s.Lanes, s.Buffers = n, 1
	return s
}

// flow makes a contender of a pipeline over l's batches with schedule s.
func (t *target) flow(group, name string, l load, s streams.Schedule) (*contender, *flow) {
	f := &flow{t: t, load: l, drivers: defaultDrivers, cfg: t.Pipeline(t.info, l.operators())}
	f.cfg.Lanes, f.cfg.Schedule = t.Lanes, s
	f.cfg.Copies = t.info.Kind == "host" // which needs none, and then there would be nothing to overlap
	f.cfg.BatchBytes, f.cfg.BatchPayloads = l.bytes(), l.payloads()
	c := &contender{measure: f.measure}
	c.row = t.row(group, name, l)
	c.row.Buffers, c.row.Lanes = s.Buffers, s.Lanes
	if s.Lanes == 0 {
		c.row.Lanes = t.Lanes
	}
	return c, f
}

// setLanes is for a row that has lanes of its own.
func (f *flow) setLanes(c *contender, lanes int) { f.cfg.Lanes, c.row.Lanes = lanes, lanes }

// open makes the flow's pipeline.
func (f *flow) open() (*streams.Pipeline, error) {
	dev := f.t.dev
	if f.double != nil {
		dev = f.double(dev)
	}
	return streams.New(dev, f.cfg)
}

// measure implements contender.measure.
func (f *flow) measure(ctx context.Context, c *contender, seed uint64) (err error) {
	p, err := f.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	held, err := fill(ctx, p, f.load, seed)
	if err != nil {
		return err
	}
	if err := f.warmUp(ctx, p, held); err != nil {
		return err
	}
	before, err := p.Stats()
	if err != nil {
		return err
	}
	f.recent.forget()
	r, err := f.lap(ctx, p, held, f.batches, true)
	if err != nil {
		return err
	}
	after, err := p.Stats()
	if err != nil {
		return err
	}
	if err := verify(held, f.load, seed); err != nil {
		return err
	}
	f.enter(c, p, r, before, after)
	return nil
}

// lap runs n batches, at least as many as are held.
func (f *flow) lap(ctx context.Context, p *streams.Pipeline, held []*streams.Batch, n int, again bool) (ran, error) {
	l := &lap{p: p, again: again, locked: f.locked, recent: &f.recent, left: newCounter(n - len(held))}
	return l.run(ctx, held, min(f.drivers, len(held)))
}

// warmUp runs every batch once, and in the first round finds how many batches a round takes.
func (f *flow) warmUp(ctx context.Context, p *streams.Pipeline, held []*streams.Batch) error {
	if _, err := f.lap(ctx, p, held, len(held), false); err != nil {
		return err
	}
	if f.batches > 0 {
		return nil
	}
	n, err := pace(f.t.turn(), len(held), func(n int) (time.Duration, error) {
		r, err := f.lap(ctx, p, held, n, true)
		return r.elapsed, err
	})
	f.batches = n
	return err
}

// fill acquires every batch of p and fills it with fresh data.
func fill(ctx context.Context, p *streams.Pipeline, l load, seed uint64) ([]*streams.Batch, error) {
	held := make([]*streams.Batch, p.Slots())
	for i := range held {
		b, err := p.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if err := l.fill(b, derive(seed, b.Slot())); err != nil {
			return nil, err
		}
		held[i] = b
	}
	return held, nil
}

// verify checks the results of every held batch, as its last flight left them.
func verify(held []*streams.Batch, l load, seed uint64) error {
	return onAllCores(len(held), func(i int) error {
		b := held[i]
		if err := l.verify(b, derive(seed, b.Slot())); err != nil {
			return fmt.Errorf("slot %d: %w", b.Slot(), err)
		}
		return nil
	})
}

// onAllCores calls check(0) to check(n-1), as many at once as there are cores, since references are slow. It joins
// their errors.
func onAllCores(n int, check func(i int) error) error {
	var group sync.WaitGroup
	errs := make([]error, n)
	cores := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range n {
		cores <- struct{}{}
		group.Go(func() {
			defer func() { <-cores }()
			errs[i] = check(i)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// enter adds a round's figures to the contender.
func (f *flow) enter(c *contender, p *streams.Pipeline, r ran, before, after streams.Stats) {
	c.row.Batches += r.batches
	c.seconds = append(c.seconds, r.perBatch())
	known := len(c.stages[streams.ComputeEngine])
	for _, record := range f.recent.last(recentBatches) {
		for e := range streams.NumEngines {
			if stage := record.Stages[streams.CopyIn+streams.Stage(e)]; stage != (streams.Span{}) {
				c.stages[e] = append(c.stages[e], stage.Duration().Seconds())
			}
		}
	}
	if f.kernelAlone {
		c.add(figureKernelTime, "s", median(c.stages[streams.ComputeEngine][known:]))
	}
	c.add(figureCores, "", r.cpu.Seconds()/r.elapsed.Seconds())
	if f.figures != nil {
		f.figures(c, r, before, after)
	}
	if !f.quiet && len(c.seconds) == f.t.Rounds {
		f.t.trace(c, p, f.recent.last(tracedBatches))
	}
}

// tracedBatches is how many batches of a row's last round a trace shows.
const tracedBatches = 48

// trace hands the records to the tracer, as those of a device named for the row.
func (t *target) trace(c *contender, p *streams.Pipeline, records []*streams.Record) {
	if t.Trace == nil {
		return
	}
	name := fmt.Sprintf("%s/%s %s %s, %d lanes", c.row.Group, c.row.Name, c.row.Operator, bytesText(c.row.BatchBytes), c.row.Lanes)
	id := name + " on " + t.info.ID
	t.Trace.AddDevice(id, name, p.Epoch())
	for _, r := range records {
		named := *r
		named.Device = id
		t.Trace.BatchDone(&named)
	}
}
