package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/streams"
)

// batchWork sends batches through pipelines at the highest possible rate. It fills every batch once per round, before
// the measurement, and resubmits each completed batch with the same payloads.
type batchWork struct {
	*rig  // the first rig
	s     *Session
	load  *load
	quiet bool // whether the trace omits the case

	others  []*rig // rigs on other devices; completed batches of all devices are resubmitted until the common count is reached
	drivers int    // number of submitting goroutines per pipeline
	locked  bool   // whether every driver is locked to its own OS thread
	refill  bool   // whether to fill each batch before every submission
	passes  bool   // whether one repetition sends all batches instead of one

	figures func(*Case, ran)                               // adds figures that only this row has; may be nil
	check   func(held []*streams.Batch, seed uint64) error // additional check of the results; may be nil

	seed   uint64 // seed of the round
	again  bool   // whether the batches have been submitted in this round
	ran    ran    // measurements of the last run
	recent recent // records of the last batches
}

// ran holds the measurements of one run.
type ran struct {
	batches int
	elapsed time.Duration // wall time
	blocked time.Duration // time that drivers waited for completed batches, summed over the drivers
	cpu     time.Duration // processor time of the process

	waited     time.Duration // time that Submit waited for the device
	allocating time.Duration // host time in calls that allocate and free scratch
	staged     float64       // seconds of a batch's three stages together, mean of recent batches
}

// batches returns a case that sends batches of l through a pipeline. The options modify the case's work.
func batches(s *Session, name string, l *load, schedule streams.Schedule, options ...func(*batchWork)) *Case {
	// One driver is enough. CUDA executes one call at a time, and a second driver would mostly spin while it waits.
	w := &batchWork{rig: newRig(s, l, schedule), s: s, load: l, drivers: 1}
	for _, option := range options {
		option(w)
	}
	return &Case{Row: w.row(name), Measure: repeat(w, s.Turn()), ordinal: w.info.Ordinal}
}

func (w *batchWork) rigs() []*rig { return append([]*rig{w.rig}, w.others...) }

// open implements work. Each rig has different data.
func (w *batchWork) open(ctx context.Context, seed uint64) error {
	w.seed, w.again = seed, false
	for i, r := range w.rigs() {
		if err := r.open(); err != nil {
			return err
		}
		r.held = make([]*streams.Batch, r.p.Slots())
		for range r.held {
			b, err := r.p.Acquire(ctx)
			if err != nil {
				return err
			}
			if err := w.load.fill(b, seed+uint64(i)); err != nil {
				return err
			}
			r.held[b.Slot()] = b
		}
	}
	return nil
}

// close implements work.
func (w *batchWork) close() error {
	var errs []error
	for _, r := range w.rigs() {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}

func (w *batchWork) slots() (n int) {
	for _, r := range w.rigs() {
		n += len(r.held)
	}
	return n
}

// minTimes implements work.
func (w *batchWork) minTimes() int {
	if w.passes {
		return 2
	}
	return w.slots()
}

// run implements work.
func (w *batchWork) run(ctx context.Context, n int) (time.Duration, error) {
	before, err := w.p.Stats()
	if err != nil {
		return 0, err
	}
	runs, each := 1, n
	if w.passes {
		runs, each = n, w.slots()
	}
	w.recent.records, w.ran = w.recent.records[:0], ran{}
	cpu, start := CPUTime(), time.Now()
	for range runs {
		if err := w.send(ctx, each); err != nil {
			return 0, err
		}
	}
	w.ran.batches, w.ran.elapsed, w.ran.cpu = runs*each, time.Since(start), CPUTime()-cpu
	after, err := w.p.Stats()
	w.ran.waited = after.HostWaited - before.HostWaited
	w.ran.allocating = after.Scratch.HostTime - before.Scratch.HostTime
	return w.ran.elapsed, err
}

// send submits all batches and resubmits completed batches until it has made n submissions. Then it waits for the
// remaining batches. n must be at least the number of slots.
func (w *batchWork) send(ctx context.Context, n int) error {
	var (
		group         sync.WaitGroup
		left, blocked atomic.Int64
		errs          = make([]error, len(w.rigs())*w.drivers)
	)
	left.Store(int64(n - w.slots()))
	for i := range errs {
		r, driver := w.rigs()[i/w.drivers], i%w.drivers
		held := r.held[driver*len(r.held)/w.drivers : (driver+1)*len(r.held)/w.drivers]
		group.Go(func() {
			if w.locked {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			var waited time.Duration
			waited, errs[i] = w.drive(ctx, r.p, held, &left)
			blocked.Add(int64(waited))
		})
	}
	group.Wait()
	w.again = true
	w.ran.blocked += time.Duration(blocked.Load())
	return errors.Join(errs...)
}

// drive runs one driver and returns the time that the driver waited for completed batches. The driver receives as many
// batches as it submits, but may receive batches of other drivers.
func (w *batchWork) drive(ctx context.Context, p *streams.Pipeline, held []*streams.Batch, left *atomic.Int64) (blocked time.Duration, err error) {
	submit := func(b *streams.Batch, again bool) (err error) {
		switch {
		case again && w.refill:
			b.Release()
			if b, err = p.Acquire(ctx); err == nil {
				err = w.load.fill(b, w.seed)
			}
		case again:
			b.Again()
		}
		if err != nil {
			return err
		}
		return b.Submit(streams.ClosedByBytes)
	}
	for _, b := range held {
		if err := submit(b, w.again); err != nil {
			return blocked, err
		}
	}
	for inFlight := len(held); inFlight > 0; inFlight-- {
		b, waited, err := receive(ctx, p)
		blocked += waited
		if err != nil {
			return blocked, err
		}
		w.recent.note(b.ReadRecord())
		if left.Add(-1) >= 0 {
			if err := submit(b, true); err != nil {
				return blocked, err
			}
			inFlight++
		}
	}
	return blocked, nil
}

// finish implements work.
func (w *batchWork) finish(c *Case) error {
	records := w.recent.last(recentBatches)
	for e := range streams.NumEngines {
		var seconds []float64
		for _, record := range records {
			if stage := record.Stages[streams.CopyIn+streams.Stage(e)]; stage != (streams.Span{}) {
				seconds = append(seconds, stage.Duration().Seconds())
				w.ran.staged += stage.Duration().Seconds() / float64(len(records))
			}
		}
		if len(seconds) > 0 {
			c.stages[e] = append(c.stages[e], median(seconds))
		}
	}
	c.Add(FigureCores, "", w.ran.cpu.Seconds()/w.ran.elapsed.Seconds())
	if w.figures != nil {
		w.figures(c, w.ran)
	}
	if len(c.seconds) == w.s.Rounds {
		w.trace(c.Row)
	}
	for i, r := range w.rigs() {
		if err := verifyAll(r.held, w.load, w.seed+uint64(i)); err != nil {
			return fmt.Errorf("on %s: %w", r.info.ID, err)
		}
	}
	if w.check == nil {
		return nil
	}
	return w.check(w.held, w.seed)
}

// trace passes the last records to the tracer, under a device named after the row.
func (w *batchWork) trace(row report.Row) {
	tracer := w.s.Trace
	if tracer == nil || w.quiet || len(w.others) > 0 {
		return
	}
	name := fmt.Sprintf("%s/%s %s %s, %d lanes", row.Group, row.Name, row.Operator, bytesText(row.BatchBytes), row.Lanes)
	id := name + " on " + row.Device
	tracer.AddDevice(id, name, w.p.Epoch())
	for _, record := range w.recent.last(tracedBatches) {
		record.Device = id
		tracer.AddBatch(&record)
	}
}

// balanced returns a mix whose kernel takes as long as the mean of a batch's copy in and copy out. It determines the
// number of rounds once for each device and size, with the serial schedule.
func balanced(ctx context.Context, s *Session, size int) (mix, error) {
	what := fmt.Sprintf("the kernel against copies of %s on %s", bytesText(size), s.info.ID)
	if s.balance[what] == 0 {
		s.Progress("balancing " + what)
		rounds, err := findBalance(ctx, s, size)
		if err != nil {
			return mix{}, fmt.Errorf("balancing %s: %w", what, err)
		}
		if rounds == 1 {
			s.Note("The kernel is not balanced for %s on %s: with a single round it already takes longer than a copy.", bytesText(size), s.info.ID)
		}
		s.balance[what] = rounds
	}
	return mix{rounds: s.balance[what]}, nil
}

// findBalance doubles the rounds until the kernel takes as long as a copy. Then it bisects to a precision of 2 %.
func findBalance(ctx context.Context, s *Session, size int) (int, error) {
	low, high := 0, maxMixRounds // with low rounds, the kernel is faster than a copy
	for high-low > 1+low/64 {
		rounds := min(max(2*low, 1), (low+high)/2)
		slower, err := kernelIsSlower(ctx, s, size, rounds)
		if err != nil {
			return 0, err
		}
		if slower {
			high = rounds
		} else {
			low = rounds
		}
	}
	return high, nil
}

// balanceBatches is the number of batches that each step of the search measures.
const balanceBatches = 15

// kernelIsSlower reports whether the kernel with the given number of rounds takes at least as long as a copy.
func kernelIsSlower(ctx context.Context, s *Session, size, rounds int) (slower bool, err error) {
	c := batches(s, "", newWords(mix{rounds: rounds}, size), streams.Serial, func(w *batchWork) { w.quiet = true })
	c.times = balanceBatches
	if err := c.Measure(ctx, c, s.seed()); err != nil {
		return false, err
	}
	for e, seconds := range c.stages {
		if len(seconds) == 0 {
			return false, Unable("the batches have no %s to balance", streams.Engine(e))
		}
	}
	copyTime := (c.stages[streams.CopyInEngine][0] + c.stages[streams.CopyOutEngine][0]) / 2
	return c.stages[streams.ComputeEngine][0] >= copyTime, nil
}
