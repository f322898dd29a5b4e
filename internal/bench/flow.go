package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/streams"
)

// flow measures a pipeline that runs continuously over batches that are filled once per round, before the measurement.
type flow struct {
	t           *target
	cfg         streams.Config
	load        load
	drivers     int  // goroutines that submit
	locked      bool // every driver has its own thread
	quiet       bool // omit it from the trace
	kernelAlone bool // record the round's median kernel time as a figure

	// double changes the pipeline's device in the one property that the row measures; nil: no change.
	double func(device.Device) device.Device

	// figures adds the row's special figures, from the measured run and the pipeline's counters before and after it;
	// nil: none.
	figures func(c *Case, r ran, before, after streams.Stats)

	// check makes further checks after the results have been compared with the reference; nil: none.
	check func(held []*streams.Batch, seed uint64) error

	recent recent
}

// schedule returns the worker's schedule on this device.
func (t *target) schedule() streams.Schedule {
	s := t.Pipeline(t.info, nil).Schedule
	if s.Buffers == 0 {
		return streams.Overlapped
	}
	return s
}

// inLanes returns the worker's schedule with n lanes of one buffer.
func (t *target) inLanes(n int) streams.Schedule {
	s := t.schedule()
	s.Lanes, s.Buffers = n, 1
	return s
}

// flow returns a case that runs the batches of l through a pipeline with schedule s.
func (t *target) flow(name string, l load, s streams.Schedule) (*Case, *flow) {
	// One driver: CUDA takes one call at a time, and a second driver would mostly spin while it waits.
	f := &flow{t: t, load: l, drivers: 1, cfg: t.Pipeline(t.info, l.operators())}
	f.cfg.Lanes, f.cfg.Schedule = t.Lanes, s
	f.cfg.Copies = t.info.Kind == "host" // the CPU needs no copies, but without them nothing could overlap
	f.cfg.BatchBytes, f.cfg.BatchPayloads = l.bytes(), l.payloads()
	lanes := s.Lanes
	if lanes == 0 {
		lanes = t.Lanes
	}
	return &Case{Measure: f.measure, Row: report.Row{
		Name: name, Device: t.info.ID, Lanes: lanes, Buffers: s.Buffers, BatchBytes: l.bytes(), Operator: Specs(l.operators()),
	}}, f
}

// setLanes sets the row's number of lanes.
func (f *flow) setLanes(c *Case, lanes int) { f.cfg.Lanes, c.Row.Lanes = lanes, lanes }

// open creates the flow's pipeline. The caller closes it.
func (f *flow) open() (*streams.Pipeline, error) {
	dev := f.t.dev
	if f.double != nil {
		dev = f.double(dev)
	}
	return streams.New(dev, f.cfg)
}

// withPipeline calls use with a new pipeline and closes it afterwards.
func (f *flow) withPipeline(use func(*streams.Pipeline) error) error {
	p, err := f.open()
	if err != nil {
		return err
	}
	return errors.Join(use(p), p.Close())
}

// measure implements Case.Measure.
func (f *flow) measure(ctx context.Context, c *Case, seed uint64) error {
	return f.withPipeline(func(p *streams.Pipeline) error {
		held, err := fill(ctx, p, f.load, seed)
		if err != nil {
			return err
		}
		b := f.batchRun(p, held)
		if err := f.timed(c, p, func(n int) (ran, error) { return b.run(ctx, n) }); err != nil {
			return err
		}
		if err := verify(held, f.load, seed); err != nil || f.check == nil {
			return err
		}
		return f.check(held, seed)
	})
}

// batchRun prepares a run of the held batches and divides them among the drivers.
func (f *flow) batchRun(p *streams.Pipeline, held []*streams.Batch) *batchRun {
	b := &batchRun{locked: f.locked, recent: &f.recent}
	n := min(f.drivers, len(held))
	for i := range n {
		b.drivers = append(b.drivers, driver{p, held[i*len(held)/n : (i+1)*len(held)/n]})
	}
	return b
}

// timed measures one round: run sends n batches through the pipeline.
func (f *flow) timed(c *Case, p *streams.Pipeline, run func(n int) (ran, error)) error {
	var (
		r      ran
		before streams.Stats
	)
	err := c.timed(f.t.Turn(), p.Slots(), func(n int) (took time.Duration, err error) {
		if before, err = p.Stats(); err != nil {
			return 0, err
		}
		f.recent.forget()
		r, err = run(n)
		return r.elapsed, err
	})
	if err != nil {
		return err
	}
	after, err := p.Stats()
	if err != nil {
		return err
	}
	f.enter(c, p, r, before, after)
	return nil
}

// fill acquires every batch of p, in the order of their slots, and fills it with fresh data.
func fill(ctx context.Context, p *streams.Pipeline, l load, seed uint64) ([]*streams.Batch, error) {
	held := make([]*streams.Batch, p.Slots())
	for range held {
		b, err := p.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if err := l.fill(b, seed); err != nil {
			return nil, err
		}
		held[b.Slot()] = b
	}
	return held, nil
}

// verify checks the results of the last run in the held batches. It uses all cores, because references are slow.
func verify(held []*streams.Batch, l load, seed uint64) error {
	var group sync.WaitGroup
	errs := make([]error, len(held))
	cores := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, b := range held {
		cores <- struct{}{}
		group.Go(func() {
			defer func() { <-cores }()
			if err := l.verify(b, seed); err != nil {
				errs[i] = fmt.Errorf("slot %d: %w", b.Slot(), err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// enter adds a round's figures to the case, except for its duration.
func (f *flow) enter(c *Case, p *streams.Pipeline, r ran, before, after streams.Stats) {
	known := len(c.stages[streams.ComputeEngine])
	for _, record := range f.recent.last(recentBatches) {
		for e := range streams.NumEngines {
			if stage := record.Stages[streams.CopyIn+streams.Stage(e)]; stage != (streams.Span{}) {
				c.stages[e] = append(c.stages[e], stage.Duration().Seconds())
			}
		}
	}
	if f.kernelAlone {
		c.Add(figureKernelTime, "s", median(c.stages[streams.ComputeEngine][known:]))
	}
	c.Add(FigureCores, "", r.cores())
	if f.figures != nil {
		f.figures(c, r, before, after)
	}
	if !f.quiet && len(c.seconds) == f.t.Rounds {
		f.t.trace(c, p, f.recent.last(tracedBatches))
	}
}

// tracedBatches is the number of batches of a row's last round in a trace.
const tracedBatches = 48

// trace passes the records to the tracer, as records of a device that is named after the row.
func (t *target) trace(c *Case, p *streams.Pipeline, records []streams.Record) {
	if t.Trace == nil {
		return
	}
	name := fmt.Sprintf("%s/%s %s %s, %d lanes", c.Row.Group, c.Row.Name, c.Row.Operator, bytesText(c.Row.BatchBytes), c.Row.Lanes)
	id := name + " on " + t.info.ID
	t.Trace.AddDevice(id, name, p.Epoch())
	for _, r := range records {
		r.Device = id
		t.Trace.AddBatch(&r)
	}
}
