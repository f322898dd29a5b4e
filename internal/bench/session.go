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

// Options selects the measurements and their duration.
type Options struct {
	Devices []device.Device // at least one device, owned by the caller; no device may have a pipeline during Run

	Groups []string // names of suites; empty means all
	Rows   []string // names of rows, such as "triple" or "schedules/triple"; empty means all

	Suites []Suite // additional suites, measured after the suites of this package

	Bytes  []int         // sizes of batches or payloads (see Suite.Sizes); empty means the suite's defaults
	Rounds int           // number of rounds
	Budget time.Duration // time of all rounds of a row, without warm-up and checks
	Lanes  int           // lanes of rows that don't set their own number; 0 means 1
	Seed   uint64        // seed of the random data

	// Pipeline returns the worker's configuration for a device. Rows change the settings that they compare.
	Pipeline func(d device.Info, ops []operator.Operator) streams.Options

	// Yardstick is the path of the baseline program, which does the same work in plain CUDA C++ (kernels/bench). If it
	// is empty, rows are only compared with each other.
	Yardstick string

	Out      io.Writer          // receives each table when its rows are done
	Progress func(doing string) // receives the name of the next measurement, and "" before a table
	Trace    Tracer             // receives the last batches of every measured pipeline; may be nil

	Command, Commit string // values for the report
}

// Tracer draws batches. telemetry.Timeline implements it.
type Tracer interface {
	// AddDevice announces a pipeline as a device, before its first batch. The Device field of its batches is id, and
	// name is the name to show. epoch is the wall-clock time at which the device's clock was zero.
	AddDevice(id, name string, epoch time.Time)
	AddBatch(*streams.Record)
}

// Suite is a group of rows of `worker bench`.
type Suite struct {
	Name        string // name of the group
	Experiments []Experiment
	Columns     []Column // additional columns of this suite's tables
	Sizes       Sizes    // bounds of Options.Bytes for this suite
}

// Experiment is a set of rows that are measured in interleaved rounds and printed as one table.
type Experiment struct {
	Rows []Entry // rows with an empty Group

	// Run measures the rows on all devices at once. If Run is nil, the session measures the cases instead.
	Run func(context.Context, *Session) error

	// cases returns the cases for one size on Session.dev. The session interleaves the rounds of these cases.
	cases func(ctx context.Context, s *Session, size int) ([]*Case, error)

	sizes    func(*Session) []int // sizes for cases; nil means Session.batchSizes
	together bool                 // whether the cases use all devices at once; Session.dev is the first device in that case
}

// Entry describes a row for --list.
type Entry struct {
	Group string
	Name  string
	Shows string // description in one line
}

// named reports whether name is the row's name, with or without its group.
func (e Entry) named(name string) bool { return name == e.Name || name == e.Group+"/"+e.Name }

// Sizes sets the bounds of Options.Bytes.
type Sizes struct {
	Of       string // "batch" or "payload"
	Min, Max int    // bounds in bytes
}

func (s Sizes) contains(n int) bool { return n >= s.Min && n <= s.Max }

// These are the bounds of the sizes and lanes of rows that measure devices.
const (
	MinBatchBytes = 4 << 10 // smallest batch
	MaxBatchBytes = 1 << 30 // largest batch
	maxLanes      = 64
)

// deviceSuite returns a suite that measures devices.
func deviceSuite(name string, experiments ...Experiment) Suite {
	return Suite{Name: name, Experiments: experiments, Sizes: Sizes{Of: "batch", Min: MinBatchBytes, Max: MaxBatchBytes}}
}

// Session is one run of the bench.
type Session struct {
	Options
	report  *report.Report
	printer printer
	program *program // baseline program; may be nil
	seeds   int      // number of seeds returned so far

	suite   Suite         // the suite being measured
	dev     device.Device // the device whose rows are measured
	info    device.Info   // description of dev
	notes   []string      // lines to print below the next table
	balance map[string]int
}

// newSession returns a new session without a baseline program.
func newSession(o Options) *Session {
	o.Lanes = max(o.Lanes, 1)
	s := &Session{
		Options: o, printer: printer{out: o.Out, explained: map[string]bool{}}, balance: map[string]int{},
		report: &report.Report{Version: report.Version, Command: o.Command, Commit: o.Commit, Started: time.Now()},
	}
	for _, d := range o.Devices {
		i := d.Info()
		s.report.Devices = append(s.report.Devices, report.Device{
			Kind: i.Kind, ID: i.ID, Name: i.Name, Driver: i.Driver, Runtime: i.Runtime, Compute: i.Compute, Units: i.Units,
		})
	}
	return s
}

// run measures the experiments of the suites and prints a table for each.
func (s *Session) run(ctx context.Context, suites []Suite) error {
	for _, s.suite = range suites {
		for _, e := range s.suite.Experiments {
			if !slices.ContainsFunc(e.Rows, func(row Entry) bool { return s.wants(s.suite.Name, row.Name) }) {
				continue
			}
			from := len(s.report.Rows)
			err := s.runExperiment(ctx, e)
			if err := errors.Join(err, s.print(from)); err != nil {
				return err
			}
		}
	}
	return nil
}

// runExperiment measures an experiment, once or on each device.
func (s *Session) runExperiment(ctx context.Context, e Experiment) error {
	if e.Run != nil {
		return s.leaveOut(e, "all", e.Run(ctx, s))
	}
	devices := s.Devices
	if e.together {
		devices = devices[:1]
	}
	for _, d := range devices {
		s.use(d)
		id := s.info.ID
		if e.together {
			id = "all"
		}
		if err := s.leaveOut(e, id, s.runCases(ctx, e)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) use(d device.Device) { s.dev, s.info = d, d.Info() }

func (s *Session) isGPU() bool { return s.info.Kind == "cuda" }

func (s *Session) runCases(ctx context.Context, e Experiment) error {
	sizes := (*Session).batchSizes
	if e.sizes != nil {
		sizes = e.sizes
	}
	for _, size := range sizes(s) {
		cases, err := e.cases(ctx, s, size)
		if err != nil {
			return err
		}
		if err := s.Measure(ctx, cases...); err != nil {
			return err
		}
		s.Report(cases...)
	}
	return nil
}

// leaveOut handles the error of an experiment. If the device can't run the experiment, leaveOut reports its rows with
// the reason and returns nil. Otherwise, it returns err.
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

// Measure runs the cases in interleaved rounds. Each round runs every case once. All cases of a round use the same
// seed, so they process the same data. If a case can't be measured, Measure sets Row.Skipped to the reason. Any other
// error ends the run. Measure ignores nil cases.
func (s *Session) Measure(ctx context.Context, cases ...*Case) error {
	cases = s.selected(cases)
	for round := range s.Rounds {
		seed := s.seed()
		if s.program != nil {
			clear(s.program.round)
		}
		for _, c := range cases {
			if c.Row.Skipped != "" {
				continue
			}
			name := c.Row.Group + "/" + c.Row.Name + onDevice(c.Row.Device)
			s.Progress(fmt.Sprintf("%s, round %d of %d", name, round+1, s.Rounds))
			err := c.Measure(ctx, c, seed)
			if err != nil && ctx.Err() != nil {
				return fmt.Errorf("interrupted: %w", ctx.Err())
			}
			if reason, cannot := unable(err); cannot {
				c.Row.Skipped = reason
			} else if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			} else if c.baseline != nil && s.program != nil {
				s.Progress(name + " by the baseline program")
				c.baseline.measure(s.program, c.ordinal)
			}
		}
	}
	return nil
}

// selected returns the requested cases and the cases that they are compared with. It sets the group of every row.
func (s *Session) selected(all []*Case) (list []*Case) {
	for _, c := range all {
		if c == nil {
			continue
		}
		c.Row.Group = s.suite.Name
		if !c.Reference && !c.hidden && !s.wants(c.Row.Group, c.Row.Name) {
			continue
		}
		list = append(list, c)
	}
	return list
}

// Report compares the cases and adds the requested rows to the report, in the order of the arguments.
func (s *Session) Report(cases ...*Case) {
	for _, c := range cases {
		for _, compare := range c.compare {
			compare()
		}
	}
	for _, c := range cases {
		if !c.hidden && s.wants(c.Row.Group, c.Row.Name) {
			s.compareBaseline(c)
			s.report.Rows = append(s.report.Rows, c.row())
		}
	}
}

// noBaseline is printed below the first table that could be compared with plain CUDA.
const noBaseline = "Nothing here is compared with plain CUDA, because there is no baseline program. " +
	"Build it with `make -C kernels yardstick` and name it with --yardstick (it needs a GPU)."

// compareBaseline adds the time of the baseline program and its ratio to the time of the case.
func (s *Session) compareBaseline(c *Case) {
	switch b := c.baseline; {
	case b == nil:
	case s.program == nil && !s.printer.explained[noBaseline]:
		s.printer.explained[noBaseline] = true
		s.Note(noBaseline)
	case b.err != nil:
		s.Note("%s: not compared with the baseline program: %v", c.Row.Name, b.err)
	case len(b.seconds) > 0:
		c.Add(baselineTime.name, baselineTime.unit, b.seconds...)
		if of, ok := ratioOf(b.seconds, c.seconds); ok && !b.unlike {
			c.ratios = append(c.ratios, report.Figure{Name: overBaseline.name, Unit: overBaseline.unit, Spread: of})
		}
	}
}

// print prints the rows of the report, beginning with the row at index from, and then the notes.
func (s *Session) print(from int) error {
	rows, notes := s.report.Rows[from:], s.notes
	s.notes = nil
	if len(rows) == 0 {
		return nil
	}
	s.Progress("") // ends the progress line
	return s.printer.print(s.suite.Name, s.suite.Columns, rows, notes)
}

// seed returns a seed that this run has not used before.
func (s *Session) seed() uint64 {
	s.seeds++
	return derive(s.Seed, s.seeds)
}

// Note adds a line below the experiment's table. Equal lines are printed once.
func (s *Session) Note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// Turn returns the duration of one round of a row.
func (s *Session) Turn() time.Duration { return s.Budget / time.Duration(s.Rounds) }

// Sizes returns the sizes to measure, in bytes: the sizes in Options.Bytes that the suite accepts, or defaults if
// Options.Bytes is empty.
func (s *Session) Sizes(defaults ...int) []int {
	if len(s.Bytes) == 0 {
		return defaults
	}
	var sizes []int
	for _, n := range s.Bytes {
		if b := s.suite.Sizes; !b.contains(n) {
			s.Note("Left out: %ss of %s. Give %d to %d bytes.", b.Of, bytesText(n), b.Min, b.Max)
			continue
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// batchSizes returns the batch sizes to measure, in bytes.
func (s *Session) batchSizes() []int {
	if s.isGPU() {
		return s.Sizes(1<<20, 16<<20)
	}
	return s.Sizes(256<<10, 1<<20)
}

// lastOf returns a slice with only the last size, or an empty slice.
func lastOf(sizes []int) []int { return sizes[max(len(sizes)-1, 0):] }

// wants reports whether the row was requested.
func (o Options) wants(group, name string) bool {
	if len(o.Groups) > 0 && !slices.Contains(o.Groups, group) {
		return false
	}
	e := Entry{Group: group, Name: name}
	return len(o.Rows) == 0 || slices.ContainsFunc(o.Rows, e.named)
}
