// Package bench measures devices and their pipelines for `worker bench`: copies, schedules, lanes, allocation,
// completion, operators and latency. Package bench/broker adds the suite that measures the whole path from one stream
// to another. Package bench/report defines the JSON document of a run.
//
// A Case is one row: its set-up, its repeated work, and a check of the results. A Suite is a list of experiments. An
// Experiment is a set of cases that are printed as one table. A Session interleaves the rounds of these cases, so a
// machine that becomes slower or faster affects all of them equally. Every round has fresh random data, a new pipeline,
// a warm-up, and a check of the results against the reference. A figure is the median over the rounds, with the 10th
// and the 90th percentile. A ratio is the quotient of two such medians, so it agrees with the figures in the same
// table.
//
// Rows that measure a device resubmit the same batches. They don't fill batches during the measurement, because the
// copying would occupy a core. The descriptions of rows that include filling mention this.
//
// Each file refers only to files that precede it in this list:
//
//	mix.go, data.go            the balanced operator; random payloads and the check of their results
//	table.go                   figures, columns and tables
//	baseline.go                the baseline program in plain CUDA C++
//	case.go, session.go        Case; Session, which runs cases
//	rig.go, batches.go         the pipeline of a case; cases that send batches through it
//	variants.go                devices that differ from the measured one in one respect
//	copy.go, persistent.go     copies; persistent kernels
//	single.go                  the suites completion and latency, which send one payload at a time
//	schedules.go, streams.go, operators.go    the other suites
//	bench.go                   Run, and the list of all rows
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/internal/bench/report"
)

// These are the bounds of Options, and the defaults of the command.
const (
	DefaultRounds = 5
	DefaultBudget = 600 * time.Millisecond

	maxRounds = 1000
	maxBudget = time.Hour
)

// Run makes the measurements that o selects and returns the report. After an error, the report contains the earlier
// measurements. Run fails if a result is wrong, a device is lost or ctx is done. If a device doesn't support a
// measurement, the row contains the reason.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	s := newSession(o)
	if err := o.Check(); err != nil {
		return s.report, err
	}
	if len(o.Devices) == 0 {
		return s.report, errors.New("bench: no device to measure")
	}
	var err error
	if s.program, err = startProgram(ctx, o.Yardstick); err == nil {
		err = s.run(ctx, o.suites())
	}
	return s.report, errors.Join(err, s.program.close())
}

// Check returns an error that joins all problems of the options, or nil if Run accepts the options.
func (o Options) Check() error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	want(o.Rounds >= 1 && o.Rounds <= maxRounds, "--rounds is %d: give 1 to %d", o.Rounds, maxRounds)
	want(o.Budget > 0 && o.Budget <= maxBudget, "--seconds is %v: give more than 0 and at most %v", o.Budget.Seconds(), maxBudget.Seconds())
	want(o.Lanes >= 0 && o.Lanes <= maxLanes, "--lanes is %d: give 0 to %d", o.Lanes, maxLanes)
	return errors.Join(append(errs, o.checkBytes(), o.checkNames())...)
}

// checkBytes checks the sizes against the bounds of the first requested suite. Later suites skip sizes outside their
// bounds.
func (o Options) checkBytes() error {
	suites := o.suites()
	first := slices.IndexFunc(suites, func(s Suite) bool { return o.Measures(s.Name) })
	bounds := suites[max(first, 0)].Sizes
	var errs []error
	for _, n := range o.Bytes {
		if !bounds.contains(n) {
			errs = append(errs, fmt.Errorf("a %s of %d bytes: give %d to %d", bounds.Of, n, bounds.Min, bounds.Max))
		}
	}
	return errors.Join(errs...)
}

// deviceSuites are the suites of this package, in the order of the output.
var deviceSuites = []Suite{copySuite, scheduleSuite, streamSuite, allocSuite, completionSuite, operatorSuite, latencySuite}

// suites returns all suites in the order of the output.
func (o Options) suites() []Suite { return slices.Concat(deviceSuites, o.Suites) }

// Groups returns the names of this package's suites and of the suites in more, in the order of the output.
func Groups(more ...Suite) []string {
	var names []string
	for _, s := range slices.Concat(deviceSuites, more) {
		names = append(names, s.Name)
	}
	return names
}

// List returns every row of this package's suites and of the suites in more, in the order of the output.
func List(more ...Suite) []Entry {
	var all []Entry
	for _, s := range slices.Concat(deviceSuites, more) {
		for _, e := range s.Experiments {
			for _, row := range e.Rows {
				all = append(all, Entry{Group: s.Name, Name: row.Name, Shows: row.Shows})
			}
		}
	}
	return all
}

// checkNames returns an error for each requested group and row that doesn't exist. Each error lists the existing names.
func (o Options) checkNames() error {
	var errs []error
	groups, rows := Groups(o.Suites...), List(o.Suites...)
	for _, g := range o.Groups {
		if !slices.Contains(groups, g) {
			errs = append(errs, fmt.Errorf("there is no group %q: known are %s", g, strings.Join(groups, ", ")))
		}
	}
	for _, name := range o.Rows {
		if !slices.ContainsFunc(rows, func(e Entry) bool { return e.named(name) }) {
			var known []string
			for _, e := range rows {
				known = append(known, e.Group+"/"+e.Name)
			}
			errs = append(errs, fmt.Errorf("there is no row %q: known are %s", name, strings.Join(known, ", ")))
		}
	}
	return errors.Join(errs...)
}

// Measures reports whether a row of the group was requested.
func (o Options) Measures(group string) bool {
	return slices.ContainsFunc(List(o.Suites...), func(e Entry) bool { return e.Group == group && o.wants(group, e.Name) })
}
