// Package bench measures devices and the pipeline on them: copies, schedules, lanes, allocation, completion,
// operators and latency. It drives streams.Pipeline, as the worker does, and has no pipeline of its own.
//
// What is compared is measured in turns: one round of each, then the next round of each, so that a machine that
// grows slower or faster does so for all alike. Every round has fresh random data, a pipeline of its own (a device
// has one at a time), a warm-up, and a check of its results against the reference. A figure is the median over the
// rounds, with the 10th and 90th percentile.
//
// Rows that measure the device do not fill batches while the clock runs: filling costs a core's memcpy. They submit
// batches again with the payloads that are in them. Rows that measure the whole way of a payload say so.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// Bounds and defaults of Options.
const (
	DefaultRounds = 5
	DefaultBudget = 600 * time.Millisecond
	DefaultLanes  = 4

	maxRounds     = 1000
	maxBudget     = time.Hour
	maxLanes      = 64
	MinBatchBytes = 4 << 10 // smallest batch
	MaxBatchBytes = 1 << 30 // largest batch
)

// Options says what to measure and how long.
type Options struct {
	Devices []device.Device // at least one; they stay the caller's. None may have a pipeline meanwhile

	Groups []string // names of groups; none: all
	Rows   []string // names of rows, "triple" or "schedules/triple"; none: all

	Guests []Guest // measured behind the groups of this package

	Bytes  []int         // batch sizes; none: 1 MiB and 16 MiB on a GPU, 256 KiB and 1 MiB else. To guests, sizes of payloads
	Rounds int           // 0: DefaultRounds
	Budget time.Duration // to measure a row for, all rounds together, warm-up and checks apart; 0: DefaultBudget
	Lanes  int           // lanes of the rows that do not set their own; 0: DefaultLanes
	Seed   uint64        // of the random data

	// Pipeline is the configuration that the worker gives a device's pipeline; rows change in it what they
	// compare. nil takes streams' defaults with a scratch pool of 1 GiB.
	Pipeline func(d device.Info, ops []operator.Operator) streams.Config

	// Yardstick is the program to compare with; empty for none.
	Yardstick string

	// MixRounds is the work of the balanced kernel, in rounds a word; 0 finds the rounds with which it takes as
	// long as a copy.
	MixRounds int

	Out      io.Writer          // gets the tables, each as its rows are done; nil for none
	Progress func(doing string) // told what is measured next, and "" when it is done; nil for none
	Trace    Tracer             // told of the last batches of every measured pipeline; nil for none

	Command, Commit string // for the report
}

// Tracer is told of batches so as to draw them: telemetry.Timeline is one.
type Tracer interface {
	// AddDevice tells of a pipeline before its first batch, as if it were a device: its batches have id as
	// their Device. epoch is that of the device's clock.
	AddDevice(id, name string, epoch time.Time)
	BatchDone(*streams.Record)
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	if o.Rounds == 0 {
		o.Rounds = DefaultRounds
	}
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	if o.Lanes == 0 {
		o.Lanes = DefaultLanes
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Pipeline == nil {
		o.Pipeline = func(_ device.Info, ops []operator.Operator) streams.Config {
			return streams.Config{Operators: ops, ScratchLimit: 1 << 30}
		}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// Check names every problem of the options, joined; nil if Run can take them.
func (o Options) Check() error {
	o = o.withDefaults()
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	want(o.Rounds >= 1 && o.Rounds <= maxRounds, "%d rounds: give 1 to %d", o.Rounds, maxRounds)
	want(o.Budget > 0 && o.Budget <= maxBudget, "%v a row: give more than 0 and at most %v", o.Budget, maxBudget)
	want(o.Lanes >= 1 && o.Lanes <= maxLanes, "%d lanes: give 1 to %d", o.Lanes, maxLanes)
	want(o.MixRounds >= 0 && o.MixRounds <= maxMixRounds, "%d rounds of the balanced kernel: give 0 to %d", o.MixRounds, maxMixRounds)
	return errors.Join(append(errs, o.checkBytes(), checkNames(o.Groups, o.Rows, o.Guests))...)
}

// checkBytes names the sizes that what was asked for cannot have. A guest's bounds count only where nothing else is
// asked for: beside batches it leaves out the sizes that its payloads cannot have.
func (o Options) checkBytes() error {
	what, least, most := "batch", MinBatchBytes, MaxBatchBytes
	if !slices.ContainsFunc(experiments, o.selects) && len(o.Guests) > 0 {
		what, least, most = "payload", o.Guests[0].MinBytes, o.Guests[0].MaxBytes
	}
	var errs []error
	for _, n := range o.Bytes {
		if n < least || n > most {
			errs = append(errs, fmt.Errorf("a %s of %d bytes: give %d to %d", what, n, least, most))
		}
	}
	return errors.Join(errs...)
}

// session is one run.
type session struct {
	Options
	report    *report.Report
	yardstick *yardstick      // nil for none
	seeds     int             // handed out so far
	asked     bool            // some row of this table can be compared with the yardstick
	notes     []string        // what this table must say beside its figures
	explained map[string]bool // columns whose meaning has been told
}

// Run measures what o asks for and returns the report, which on an error holds what was measured before it. Fails
// where a result is wrong, a device is lost or ctx is done. What a device cannot do is a row that says so.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	s := &session{Options: o.withDefaults(), explained: map[string]bool{}}
	s.report = &report.Report{Version: report.Version, Command: o.Command, Commit: o.Commit, Started: time.Now()}
	if err := o.Check(); err != nil {
		return s.report, err
	}
	if len(o.Devices) == 0 {
		return s.report, errors.New("bench: no device to measure")
	}
	for _, d := range o.Devices {
		i := d.Info()
		s.report.Devices = append(s.report.Devices, report.Device{
			Kind: i.Kind, ID: i.ID, Name: i.Name, Driver: i.Driver, Runtime: i.Runtime, Compute: i.Compute, Units: i.Units,
		})
	}
	err := s.startYardstick(ctx)
	if err == nil {
		err = s.experiments(ctx)
	}
	return s.report, errors.Join(err, s.yardstick.close())
}

// experiments makes one experiment after the other and prints the table of each.
func (s *session) experiments(ctx context.Context) error {
	targets := make([]*target, len(s.Devices))
	for i, d := range s.Devices {
		targets[i] = &target{session: s, dev: d, info: d.Info(), balance: map[int]int{}}
	}
	for _, e := range everything(s.Guests) {
		if !s.selects(e) {
			continue
		}
		from := len(s.report.Rows)
		err := s.measure(ctx, e, targets)
		if err := errors.Join(err, s.printRows(e.group, from)); err != nil {
			return err
		}
	}
	return nil
}

// measure makes one experiment, on every device that it is for.
func (s *session) measure(ctx context.Context, e experiment, targets []*target) error {
	if e.together != nil {
		return s.leaveOut(e, "all", e.together(ctx, targets))
	}
	for _, t := range targets {
		if err := s.leaveOut(e, t.info.ID, e.run(ctx, t)); err != nil {
			return err
		}
	}
	return nil
}

// leaveOut enters the rows of an experiment that the device cannot do at all, with the reason. Any other error it
// returns.
func (s *session) leaveOut(e experiment, device string, err error) error {
	reason, cannot := unable(err)
	if !cannot {
		return err
	}
	for _, row := range e.rows {
		if s.wants(e.group, row.Name) {
			s.report.Rows = append(s.report.Rows, report.Row{Group: e.group, Name: row.Name, Device: device, Skipped: reason})
		}
	}
	return nil
}

// seed is one that nothing else of this run has.
func (s *session) seed() uint64 {
	s.seeds++
	return derive(s.Seed, s.seeds)
}

func (s *session) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// target is a device under measurement.
type target struct {
	*session
	dev     device.Device
	info    device.Info
	balance map[int]int // rounds of the balanced kernel, by batch bytes
}

// isGPU says whether figures are of a GPU.
func (t *target) isGPU() bool { return t.info.Kind == "cuda" }

// sizes are the batch sizes to measure, in bytes.
func (t *target) sizes() []int {
	switch {
	case len(t.Bytes) > 0:
		return t.Bytes
	case t.isGPU():
		return []int{1 << 20, 16 << 20}
	}
	return []int{256 << 10, 1 << 20}
}

// turn is how long one round of a row is measured for.
func (s *session) turn() time.Duration { return s.Budget / time.Duration(s.Rounds) }
