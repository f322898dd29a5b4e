package bench

import (
	"fmt"
	"slices"

	"millrace/internal/bench/report"
	"millrace/internal/console"
)

// printRows prints the rows of the report from number from on: a table, what those of its columns mean that no table
// before had, and what could not be measured and why.
func (s *session) printRows(group string, from int) error {
	rows := s.report.Rows[from:]
	if len(rows) == 0 {
		return nil
	}
	s.Progress("") // so that the table does not begin behind it
	shown := s.shownColumns(group, rows)
	notes := s.takeNotes(rows)
	table := [][]string{{group}}
	for _, c := range shown {
		table[0] = append(table[0], c.title)
	}
	for _, r := range rows {
		line := []string{r.Name}
		for _, c := range shown {
			line = append(line, orDash(c.cell(r)))
		}
		table = append(table, line)
	}
	if _, err := fmt.Fprintln(s.Out); err != nil {
		return err
	}
	if err := console.Table(s.Out, table); err != nil {
		return err
	}
	for _, note := range append(s.legends(shown), notes...) {
		if _, err := fmt.Fprintf(s.Out, "  %s\n", note); err != nil {
			return err
		}
	}
	return nil
}

// legends are what those columns mean that have not been explained yet.
func (s *session) legends(shown []column) []string {
	var lines []string
	for _, c := range shown {
		if c.legend != "" && !s.explained[c.title] {
			lines = append(lines, c.title+": "+c.legend)
			s.explained[c.title] = true
		}
	}
	return lines
}

func orDash(cell string) string {
	if cell == "" {
		return "-"
	}
	return cell
}

// shownColumns are the columns in which a row has something to say, and those that tell rows apart.
func (s *session) shownColumns(group string, rows []report.Row) []column {
	var shown []column
	for _, c := range s.columns() {
		if c.group != "" && c.group != group {
			continue
		}
		var values []string
		for _, r := range rows {
			if v := c.cell(r); v != "" && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		if len(values) > 1 || len(values) == 1 && !c.apart {
			shown = append(shown, c)
		}
	}
	has := func(r report.Row) bool { return yardstickColumn.cell(r) != "" }
	if s.asked && (s.yardstick == nil || slices.ContainsFunc(rows, has)) {
		shown = append(shown, yardstickColumn)
	}
	return shown
}

// noYardstick says why the yardstick's column is empty.
const noYardstick = "yardstick: -: none was there; build it with `make -C kernels yardstick` and name it with --yardstick (it needs a GPU)"

// takeNotes is what is to be said below a table, each line once, and makes room for the next table's.
func (s *session) takeNotes(rows []report.Row) []string {
	var notes []string
	for _, r := range rows {
		if r.Skipped != "" {
			notes = append(notes, fmt.Sprintf("%s%s: -: %s", r.Name, onDevice(r.Device), r.Skipped))
		}
	}
	notes = append(notes, s.notes...)
	if s.asked && s.yardstick == nil && !s.explained[noYardstick] {
		notes = append(notes, noYardstick)
		s.explained[noYardstick] = true
	}
	s.notes = nil
	s.asked = false
	var once []string
	for _, note := range notes {
		if !slices.Contains(once, note) {
			once = append(once, note)
		}
	}
	return once
}
