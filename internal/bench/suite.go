package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Suite is a group of rows of `worker bench`.
type Suite struct {
	Name        string // the group
	Experiments []Experiment
	Columns     []Column // shown in this suite's tables only, after the columns of every suite
	Sizes       Sizes    // bounds of Options.Bytes for this suite
}

// Experiment is a set of rows that are measured in interleaved rounds and printed as one table.
type Experiment struct {
	Rows []Entry // without Group

	// Run measures the rows on all devices at once.
	Run func(context.Context, *Session) error

	// each measures the rows on one device. It is set if Run is nil.
	each func(context.Context, *target) error
}

// Entry is a row as shown by --list.
type Entry struct {
	Group string
	Name  string
	Shows string // one line
}

// Sizes sets the bounds of Options.Bytes.
type Sizes struct {
	Of          string // "batch" or "payload"
	Least, Most int    // in bytes
}

// batchSizes bounds the sizes for all suites that measure devices.
var batchSizes = Sizes{Of: "batch", Least: MinBatchBytes, Most: MaxBatchBytes}

func (b Sizes) hold(n int) bool { return n >= b.Least && n <= b.Most }

// deviceSuites are the suites of this package, in the order of the output.
var deviceSuites = []Suite{copySuite, scheduleSuite, streamSuite, allocSuite, completionSuite, operatorSuite, latencySuite}

// deviceSuite returns a suite that measures devices.
func deviceSuite(name string, experiments ...Experiment) Suite {
	return Suite{Name: name, Experiments: experiments, Sizes: batchSizes}
}

// suites returns all suites in the order of the output.
func (o Options) suites() []Suite { return slices.Concat(deviceSuites, o.Suites) }

// Groups returns the names of the suites in the order of the output. more are the suites of other packages.
func Groups(more ...Suite) []string {
	var names []string
	for _, s := range slices.Concat(deviceSuites, more) {
		names = append(names, s.Name)
	}
	return names
}

// List returns every row in the order of the output. more are the suites of other packages.
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

// checkNames returns an error for each group and row that doesn't exist, with the names of the existing ones.
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

// named reports whether name refers to the row: "triple" or "schedules/triple".
func (e Entry) named(name string) bool { return name == e.Name || name == e.Group+"/"+e.Name }

// Measures reports whether a row of the group was requested.
func (o Options) Measures(group string) bool {
	return slices.ContainsFunc(List(o.Suites...), func(e Entry) bool { return e.Group == group && o.wants(group, e.Name) })
}

// wants reports whether the row was requested.
func (o Options) wants(group, name string) bool {
	if len(o.Groups) > 0 && !slices.Contains(o.Groups, group) {
		return false
	}
	e := Entry{Group: group, Name: name}
	return len(o.Rows) == 0 || slices.ContainsFunc(o.Rows, e.named)
}
