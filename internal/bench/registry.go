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

// Groups lists the names of the groups in the order in which they are measured.
func Groups() []string {
	var names []string
	for _, e := range experiments {
		if !slices.Contains(names, e.group) {
			names = append(names, e.group)
		}
	}
	return names
}

// List lists every row in the order of the output.
func List() []Entry {
	var all []Entry
	for _, e := range experiments {
		for _, row := range e.rows {
			all = append(all, Entry{Group: e.group, Name: row.Name, Shows: row.Shows})
		}
	}
	return all
}

// checkNames names the groups and rows that do not exist, and those that do.
func checkNames(groups, rows []string) error {
	var errs []error
	for _, g := range groups {
		if !slices.Contains(Groups(), g) {
			errs = append(errs, fmt.Errorf("there is no group %q: known are %s", g, strings.Join(Groups(), ", ")))
		}
	}
	for _, name := range rows {
		if !slices.ContainsFunc(List(), func(e Entry) bool { return e.named(name) }) {
			var known []string
			for _, e := range List() {
				known = append(known, e.Group+"/"+e.Name)
			}
			errs = append(errs, fmt.Errorf("there is no row %q: known are %s", name, strings.Join(known, ", ")))
		}
	}
	return errors.Join(errs...)
}

// named says whether name means the row: "triple" or "schedules/triple".
func (e Entry) named(name string) bool { return name == e.Name || name == e.Group+"/"+e.Name }

// selects says whether a row of e is asked for.
func (s *session) selects(e experiment) bool {
	return slices.ContainsFunc(e.rows, func(row Entry) bool { return s.wants(e.group, row.Name) })
}

// wants says whether a row is asked for.
func (s *session) wants(group, name string) bool {
	if len(s.Groups) > 0 && !slices.Contains(s.Groups, group) {
		return false
	}
	e := Entry{Group: group, Name: name}
	return len(s.Rows) == 0 || slices.ContainsFunc(s.Rows, e.named)
}
