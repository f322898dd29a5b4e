// Package bench is the harness of `worker bench`, with the suites that measure devices and the pipeline on them:
// copies, schedules, lanes, allocation, completion, operators and latency. Package bench/broker adds the suite that
// measures the whole path from one stream to another. Package bench/report defines the JSON document of a run.
//
// Start with Suite, Case and Session.Measure. A Suite is one group of rows, and a Case is one row while it is measured.
// Session.Measure interleaves the cases of an experiment: one round of each, then the next round of each. So a machine
// that becomes slower or faster affects all of them equally. Every round has fresh random data, its own pipeline (a
// device has one at a time), a warm-up, and a check of its results against the reference. A figure is the median over
// the rounds, with the 10th and the 90th percentile. A ratio is the quotient of two such medians, so it always agrees
// with the figures in the same table.
//
// Rows that measure a device don't fill batches during the measurement, because filling costs a core's memcpy. They
// submit the same batches again. Rows that include filling say so.
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

// Options selects the measurements and their duration.
type Options struct {
	Devices []device.Device // at least one, owned by the caller; none may have a pipeline during Run

	Groups []string // names of suites; none: all
	Rows   []string // names of rows, "triple" or "schedules/triple"; none: all

	Suites []Suite // measured after the suites of this package

	Bytes  []int         // sizes of batches, or of payloads (see Suite.Sizes); none: the suite's defaults
	Rounds int           // 0: DefaultRounds
	Budget time.Duration // per row, for all rounds together, without warm-up and checks; 0: DefaultBudget
	Lanes  int           // for rows that don't set their own; 0: DefaultLanes
	Seed   uint64        // seed of the random data

	// Pipeline returns the worker's configuration for a device. Rows change the settings that they compare. nil: the
	// defaults of package streams with a scratch pool of 1 GiB.
	Pipeline func(d device.Info, ops []operator.Operator) streams.Config

	// Yardstick is the path of the baseline program, which does the same work in plain CUDA C++ (kernels/bench). Empty:
	// rows are only compared with each other.
	Yardstick string

	// MixRounds is the work of the balanced kernel, in rounds per word. 0: the bench finds the number of rounds that
	// takes as long as a copy.
	MixRounds int

	Out      io.Writer          // receives each table when its rows are done; nil: none
	Progress func(doing string) // receives the name of the next measurement, and "" when it is done; nil: none
	Trace    Tracer             // receives the last batches of every measured pipeline; nil: none

	Command, Commit string // for the report
}

// Tracer receives batches in order to draw them. telemetry.Timeline implements it.
type Tracer interface {
	// AddDevice announces a pipeline before its first batch, as if it were a device: its batches have id as their
	// Device. epoch is the wall-clock time at which the device's clock read zero.
	AddDevice(id, name string, epoch time.Time)
	AddBatch(*streams.Record)
}

// withDefaults returns the options with defaults in place of zero fields.
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

// Check returns every problem of the options, joined, or nil if Run accepts them.
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
	return errors.Join(append(errs, o.checkBytes(), o.checkNames())...)
}

// checkBytes checks the sizes against the first suite that is measured. Later suites omit the sizes that they don't
// support.
func (o Options) checkBytes() error {
	bounds := batchSizes
	suites := o.suites()
	if i := slices.IndexFunc(suites, func(s Suite) bool { return o.Measures(s.Name) }); i >= 0 {
		bounds = suites[i].Sizes
	}
	var errs []error
	for _, n := range o.Bytes {
		if !bounds.hold(n) {
			errs = append(errs, fmt.Errorf("a %s of %d bytes: give %d to %d", bounds.Of, n, bounds.Least, bounds.Most))
		}
	}
	return errors.Join(errs...)
}

// Session is one run. Suites use it to measure their cases.
type Session struct {
	Options
	report    *report.Report
	targets   []*target
	program   *program        // the baseline program; nil for none
	suite     Suite           // the suite being measured
	seeds     int             // number of seeds handed out so far
	compares  bool            // a row of this table can be compared with the baseline program
	notes     []string        // lines to print below this table
	explained map[string]bool // columns with a legend that has been printed
}

// Run makes the measurements that o selects and returns the report. After an error the report contains the earlier
// measurements. Run fails if a result is wrong, a device is lost or ctx ends. If a device can't do something, the row
// says so.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	s := &Session{Options: o.withDefaults(), explained: map[string]bool{}}
	s.report = &report.Report{Version: report.Version, Command: o.Command, Commit: o.Commit, Started: time.Now()}
	if err := o.Check(); err != nil {
		return s.report, err
	}
	if len(o.Devices) == 0 {
		return s.report, errors.New("bench: no device to measure")
	}
	for _, d := range o.Devices {
		i := d.Info()
		s.targets = append(s.targets, &target{Session: s, dev: d, info: i, balance: map[int]int{}})
		s.report.Devices = append(s.report.Devices, report.Device{
			Kind: i.Kind, ID: i.ID, Name: i.Name, Driver: i.Driver, Runtime: i.Runtime, Compute: i.Compute, Units: i.Units,
		})
	}
	err := s.startProgram(ctx)
	if err == nil {
		err = s.runSuites(ctx)
	}
	return s.report, errors.Join(err, s.program.close())
}

// runSuites runs the experiments of all suites and prints a table for each.
func (s *Session) runSuites(ctx context.Context) error {
	for _, s.suite = range s.suites() {
		for _, e := range s.suite.Experiments {
			if !slices.ContainsFunc(e.Rows, func(row Entry) bool { return s.wants(s.suite.Name, row.Name) }) {
				continue
			}
			from := len(s.report.Rows)
			err := s.runExperiment(ctx, e)
			if err := errors.Join(err, s.printRows(from)); err != nil {
				return err
			}
		}
	}
	return nil
}

// runExperiment runs one experiment, once or on each device.
func (s *Session) runExperiment(ctx context.Context, e Experiment) error {
	if e.Run != nil {
		return s.leaveOut(e, "all", e.Run(ctx, s))
	}
	for _, t := range s.targets {
		if err := s.leaveOut(e, t.info.ID, e.each(ctx, t)); err != nil {
			return err
		}
	}
	return nil
}

// leaveOut reports the rows of an experiment that the device can't run at all, with the reason. It returns every other
// error.
func (s *Session) leaveOut(e Experiment, device string, err error) error {
	reason, cannot := unable(err)
	if !cannot {
		return err
	}
	for _, row := range e.Rows {
		if s.wants(s.suite.Name, row.Name) {
			s.report.Rows = append(s.report.Rows, report.Row{Group: s.suite.Name, Name: row.Name, Device: device, Skipped: reason})
		}
	}
	return nil
}

// seed returns a seed that nothing else in this run uses.
func (s *Session) seed() uint64 {
	s.seeds++
	return derive(s.Seed, s.seeds)
}

// Note prints a line below the experiment's table, once.
func (s *Session) Note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// Turn returns the duration of one round of a row.
func (s *Session) Turn() time.Duration { return s.Budget / time.Duration(s.Rounds) }

// Sizes returns the sizes to measure, in bytes: those of Options.Bytes that the suite accepts, or the defaults.
func (s *Session) Sizes(defaults ...int) []int {
	if len(s.Bytes) == 0 {
		return defaults
	}
	var sizes []int
	for _, n := range s.Bytes {
		if b := s.suite.Sizes; !b.hold(n) {
			s.Note("Left out: %ss of %s. Give %d to %d bytes.", b.Of, bytesText(n), b.Least, b.Most)
			continue
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// target is a device to measure.
type target struct {
	*Session
	dev     device.Device
	info    device.Info
	balance map[int]int // rounds of the balanced kernel, by bytes per batch
}

// isGPU reports whether the device is a GPU.
func (t *target) isGPU() bool { return t.info.Kind == "cuda" }

// sizes returns the batch sizes to measure, in bytes.
func (t *target) sizes() []int {
	if t.isGPU() {
		return t.Sizes(1<<20, 16<<20)
	}
	return t.Sizes(256<<10, 1<<20)
}
