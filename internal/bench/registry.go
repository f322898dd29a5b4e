package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Entry is a row as --list shows it.
type Entry struct {
	Group string
	Name  string
	Shows string // one line
}

// experiment is rows that are measured together, in turns. One of run and together is set.
type experiment struct {
	group    string
	rows     []Entry // Group is left out
	run      func(context.Context, *target) error
	together func(context.Context, []*target) error // over all devices at once
}

// experiments is everything that can be measured, in the order of the output.
var experiments = slices.Concat(
	copyExperiments, scheduleExperiments, streamExperiments, allocExperiments,
	completionExperiments, operatorExperiments, latencyExperiments,
)

// everything is what this room measures, and then what guests do.
func everything(guests []Guest) []experiment {
	all := slices.Clone(experiments)
	for _, g := range guests {
		all = append(all, g.experiments()...)
	}
	return all
}

// Groups lists the names of the groups in the order in which they are measured, guests' last.
func Groups(guests ...Guest) []string {
	var names []string
	for _, e := range everything(guests) {
		if !slices.Contains(names, e.group) {
			names = append(names, e.group)
		}
	}
	return names
}

// List lists every row in the order of the output, guests' last.
func List(guests ...Guest) []Entry {
	var all []Entry
	for _, e := range everything(guests) {
		for _, row := range e.rows {
			all = append(all, Entry{Group: e.group, Name: row.Name, Shows: row.Shows})
		}
	}
	return all
}

// checkNames names the groups and rows that do not exist, and those that do.
func checkNames(groups, rows []string, guests []Guest) error {
	var errs []error
	for _, g := range groups {
		if !slices.Contains(Groups(guests...), g) {
			errs = append(errs, fmt.Errorf("there is no group %q: known are %s", g, strings.Join(Groups(guests...), ", ")))
		}
	}
	for _, name := range rows {
		if !slices.ContainsFunc(List(guests...), func(e Entry) bool { return e.named(name) }) {
			var known []string
			for _, e := range List(guests...) {
				known = append(known, e.Group+"/"+e.Name)
			}
			errs = append(errs, fmt.Errorf("there is no row %q: known are %s", name, strings.Join(known, ", ")))
		}
	}
	return errors.Join(errs...)
}

// named says whether name means the row: "triple" or "schedules/triple".
func (e Entry) named(name string) bool { return name == e.Name || name == e.Group+"/"+e.Name }

// Measures says whether a row of the group is asked for.
func (o Options) Measures(group string) bool {
	return slices.ContainsFunc(everything(o.Guests), func(e experiment) bool { return e.group == group && o.selects(e) })
}

// selects says whether a row of e is asked for.
func (o Options) selects(e experiment) bool {
	return slices.ContainsFunc(e.rows, func(row Entry) bool { return o.wants(e.group, row.Name) })
}

// wants says whether a row is asked for.
func (o Options) wants(group, name string) bool {
	if len(o.Groups) > 0 && !slices.Contains(o.Groups, group) {
		return false
	}
	e := Entry{Group: group, Name: name}
	return len(o.Rows) == 0 || slices.ContainsFunc(o.Rows, e.named)
}
