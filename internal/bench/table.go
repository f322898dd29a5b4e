package bench

import (
	"fmt"
	"slices"
	"strings"

	"millrace/internal/bench/report"
	"millrace/internal/console"
)

// printRows prints the rows of the report with index from and above. It prints a table, the legends of columns that no
// earlier table had, and the measurements that failed, with the reasons. If all failed, it prints only the reasons.
func (s *Session) printRows(from int) error {
	rows := s.report.Rows[from:]
	if len(rows) == 0 {
		return nil
	}
	s.Progress("") // ends the progress line
	if !slices.ContainsFunc(rows, func(r report.Row) bool { return r.Skipped == "" }) {
		return s.printNotes("\n"+s.suite.Name+": not measured here", s.takeNotes(rows))
	}
	shown := s.shownColumns(rows)
	table := [][]string{{s.suite.Name}}
	for _, c := range shown {
		table[0] = append(table[0], c.Title)
	}
	for _, r := range rows {
		line := []string{r.Name}
		for _, c := range shown {
			line = append(line, orDash(c.Cell(r)))
		}
		table = append(table, line)
	}
	if _, err := fmt.Fprintln(s.Out); err != nil {
		return err
	}
	if err := console.Table(s.Out, table); err != nil {
		return err
	}
	return s.writeNotes(append(s.legends(shown), s.takeNotes(rows)...))
}

// printNotes prints a heading and notes.
func (s *Session) printNotes(heading string, notes []string) error {
	if _, err := fmt.Fprintln(s.Out, heading); err != nil {
		return err
	}
	return s.writeNotes(notes)
}

// writeNotes prints each note in a line.
func (s *Session) writeNotes(notes []string) error {
	for _, note := range notes {
		if _, err := fmt.Fprintf(s.Out, "  %s\n", note); err != nil {
			return err
		}
	}
	return nil
}

// legends explains the columns that no earlier table had.
func (s *Session) legends(shown []Column) []string {
	var lines []string
	for _, c := range shown {
		if c.Legend != "" && !s.explained[c.Title] {
			lines = append(lines, c.Title+": "+c.Legend)
			s.explained[c.Title] = true
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

// shownColumns returns the columns in which a row has something to show.
func (s *Session) shownColumns(rows []report.Row) []Column {
	var shown []Column
	for _, c := range slices.Concat(columns, s.suite.Columns) {
		var values []string
		for _, r := range rows {
			if v := c.Cell(r); v != "" && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		if len(values) > 1 || len(values) == 1 && !c.distinguishes {
			shown = append(shown, c)
		}
	}
	return shown
}

// noBaseline is printed below the first table that could have a comparison with plain CUDA.
const noBaseline = "Nothing here is compared with plain CUDA, because there is no baseline program. " +
	"Build it with `make -C kernels yardstick` and name it with --yardstick (it needs a GPU)."

// takeNotes returns the notes for a table, each line once, and clears them for the next table.
func (s *Session) takeNotes(rows []report.Row) []string {
	notes := append(skipped(rows), s.notes...)
	if s.compares && s.program == nil && !s.explained[noBaseline] {
		notes = append(notes, noBaseline)
		s.explained[noBaseline] = true
	}
	s.notes, s.compares = nil, false
	var once []string
	for _, note := range notes {
		if !slices.Contains(once, note) {
			once = append(once, note)
		}
	}
	return once
}

// skipped returns why rows were not measured. Rows of a device with the same reason share a line.
func skipped(rows []report.Row) (notes []string) {
	type cause struct{ device, reason string }
	names := map[cause][]string{}
	var causes []cause
	for _, r := range rows {
		c := cause{r.Device, r.Skipped}
		if r.Skipped == "" || slices.Contains(names[c], r.Name) {
			continue
		}
		if names[c] == nil {
			causes = append(causes, c)
		}
		names[c] = append(names[c], r.Name)
	}
	for _, c := range causes {
		notes = append(notes, fmt.Sprintf("%s%s: -: %s", strings.Join(names[c], ", "), onDevice(c.device), c.reason))
	}
	return notes
}
