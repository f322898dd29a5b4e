package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/bench/report"
	"millrace/internal/console"
	"millrace/internal/streams"
)

// figure is a kind of figure, with its name and unit in the report and its column in a table. Names must not change,
// because other programs read them. Two names still call the baseline program the yardstick.
type figure struct {
	name, unit    string
	title, legend string
	write         func(float64) string
}

// These are the figures of this package's suites.
var (
	kernelRate       = figure{"kernel rate", "GB/s", "kernel GB/s", "payload bytes over the time of the kernels, which run alone", Number}
	overCUDASerial   = figure{"speedup over plain CUDA serial", "x", "x CUDA serial", "speedup over the serial schedule of the baseline program, plain CUDA C++ measured in this run", times}
	overSerial       = figure{"speedup over serial", "x", "x own serial", "speedup over our own serial schedule (row serial of group schedules), not over plain CUDA", times}
	overWhole        = figure{"speedup over the whole payload", "x", "x whole", "speedup over the payload in one piece", times}
	overPlain        = figure{"speedup over the plain kernel", "x", "x plain", "speedup over the row plain", times}
	overNonBlocking  = figure{"speedup over non-blocking", "x", "x non-blocking", "speedup over the row non-blocking", times}
	overOne          = figure{"throughput over one device", "x", "x one", "throughput over that of the fastest device alone", times}
	ofCeiling        = figure{"share of ceiling", "", "ceiling", "the longest stage when all engines run (a copy measured in this run, or the kernel alone) over the time per batch", share}
	ofKernel         = figure{"share of the kernel's rate", "", "of kernel", "rate over that of the kernels alone", share}
	overUniform      = figure{"rate over uniform", "x", "x uniform", "kernel rate over that of payloads of one size with as many bytes in all", times}
	blocked          = figure{"submitter waiting", "", "waiting", "share of the time in which the submitting goroutine waits, for a batch to come back or within Submit", share}
	inSubmit         = figure{"submitter waiting within submit", "", "in submit", "the part of it within Submit, where the goroutine can do nothing else", share}
	byClock          = figure{"stages by host clock over events", "x", "clock/events", "stage times by the host's clock, less the cost of waiting, over those by device events", times}
	allocation       = figure{"allocation a batch", "s", "alloc us", "host time in allocation and free calls per batch", Micros}
	lessAllocation   = figure{"less allocation time than synchronous", "%", "less", "how much shorter that is than with synchronous calls", percent}
	overPreallocated = figure{"time over preallocated", "x", "x prealloc", "time per batch over that with preallocated scratch", times}
	latency          = figure{"latency", "s", "p50 us", "from the payload on the heap to its results there, while nothing else runs", Micros}
	latencyP99       = figure{"latency p99", "s", "p99 us", "", Micros}
	cpuTime          = figure{"CPU a batch", "s", "CPU us", "processor time of the process per batch", Micros}
	knee             = figure{"knee", "", "knee", "the fewest lanes within 2 % of the best throughput", func(float64) string { return "<- knee" }}
	baselineTime     = figure{"yardstick", "s", "baseline us", "time of the same work in the baseline program, plain CUDA C++ (in group completion: a kernel launch and the wait for it, without copies)", Micros}
	overBaseline     = figure{"ratio to yardstick", "x", "x baseline", "time of the baseline program over ours: above 1, ours is faster", times}

	pieces      = figure{"pieces", "", "pieces", "", func(v float64) string { return strconv.Itoa(int(v)) }}
	overLongest = figure{name: "time a batch over its longest stage", unit: "x"} // inverse of ofCeiling; only in the report
)

// FigureCores is the processor time of the process divided by wall time. CoresColumn shows it.
const FigureCores = "host cores"

// CoresColumn shows FigureCores. It is only in the tables of suites that add it.
var CoresColumn = figure{FigureCores, "", "cores", "processor time of the process over wall time", Number}.column()

// Column is one column of a table. A table omits columns that are empty in all of its rows.
type Column struct {
	Title  string
	Legend string                  // explanation; empty if the title is enough
	Cell   func(report.Row) string // returns an empty string if the row has no value

	Distinguishes bool // whether to omit the column if all cells are equal
}

// columns are the columns of every suite. A suite's own columns follow them.
var columns = append([]Column{
	{Title: "device", Cell: func(r report.Row) string { return r.Device }, Distinguishes: true},
	{Title: "operator", Cell: operatorCell, Distinguishes: true},
	{Title: "size", Legend: "bytes of the largest batch, or of what takes its place", Cell: func(r report.Row) string { return bytesCell(r.BatchBytes) }},
	{Title: "payload", Legend: "bytes of each payload", Cell: func(r report.Row) string { return bytesCell(r.PayloadBytes) }},
	{Title: "lanes", Cell: lanesCell},
	pieces.column(),
	{Title: "us/batch (p10-p90)", Legend: "wall time per batch: median of the rounds (10th to 90th percentile)", Cell: batchCell},
	{Title: "GB/s", Cell: rateCell},
	{Title: "in", Legend: "copy in of a batch by device events, median, us", Cell: stageCell(streams.CopyInEngine)},
	{Title: "compute", Legend: "kernels of a batch by device events, median, us; lanes share the device, so it includes waiting for other lanes", Cell: stageCell(streams.ComputeEngine)},
	{Title: "out", Legend: "copy out of a batch by device events, median, us", Cell: stageCell(streams.CopyOutEngine)},
}, columnsOf(kernelRate, overCUDASerial, overSerial, overWhole, overPlain, overNonBlocking, overOne, ofCeiling, ofKernel,
	overUniform, blocked, inSubmit, byClock, allocation, lessAllocation, overPreallocated, latency, latencyP99, cpuTime, knee,
	baselineTime, overBaseline)...)

func (f figure) column() Column {
	return Column{Title: f.title, Legend: f.legend, Cell: FigureCell(f.name, f.write)}
}

func columnsOf(figures ...figure) (list []Column) {
	for _, f := range figures {
		list = append(list, f.column())
	}
	return list
}

func operatorCell(r report.Row) string {
	var names []string
	for spec := range strings.SplitSeq(r.Operator, ",") {
		name, _, _ := strings.Cut(spec, "?")
		names = append(names, name)
	}
	return strings.Join(names, ",")
}

func bytesCell(n int) string {
	if n == 0 {
		return ""
	}
	return bytesText(n)
}

func lanesCell(r report.Row) string {
	if r.Lanes == 0 {
		return ""
	}
	return strconv.Itoa(r.Lanes)
}

func batchCell(r report.Row) string {
	if _, single := r.Figure(latency.name); single || r.Batch == nil {
		return ""
	}
	return withSpread(*r.Batch, Micros)
}

// rateCell returns the byte rate of a row. It returns an empty string if the row shows no time per batch or its
// batches have different sizes.
func rateCell(r report.Row) string {
	if _, sizesVary := r.Figure(allocation.name); sizesVary || batchCell(r) == "" {
		return ""
	}
	return Number(float64(r.BatchBytes) / r.Batch.Median / 1e9)
}

func stageCell(e streams.Engine) func(report.Row) string {
	return func(r report.Row) string {
		s, ok := r.Stages[e.String()]
		if !ok {
			return ""
		}
		return Micros(s.Median)
	}
}

// FigureCell returns a function that formats the median of a figure.
func FigureCell(name string, write func(float64) string) func(report.Row) string {
	return cell(name, func(s report.Spread) string { return write(s.Median) })
}

// SpreadCell returns a function that formats the median of a figure with its 10th and 90th percentile.
func SpreadCell(name string, write func(float64) string) func(report.Row) string {
	return cell(name, func(s report.Spread) string { return withSpread(s, write) })
}

func cell(name string, write func(report.Spread) string) func(report.Row) string {
	return func(r report.Row) string {
		f, ok := r.Figure(name)
		if !ok {
			return ""
		}
		return write(f.Spread)
	}
}

func withSpread(s report.Spread, write func(float64) string) string {
	return fmt.Sprintf("%s (%s-%s)", write(s.Median), write(s.Low), write(s.High))
}

// bytesText formats a size in its largest unit, such as "16 MiB".
func bytesText(n int) string { return strings.Replace(console.Bytes(float64(n)), ".0 ", " ", 1) }

// Number formats a number with three significant digits, such as "0.0123". Numbers of 100 or more have no decimals,
// such as "1,234".
func Number(v float64) string {
	if v >= 100 {
		return console.Count(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Micros formats seconds as microseconds.
func Micros(seconds float64) string { return Number(1e6 * seconds) }

func times(v float64) string   { return fmt.Sprintf("%.3gx", v) }
func percent(v float64) string { return fmt.Sprintf("%.1f %%", v) }
func share(v float64) string   { return percent(100 * v) }

// printer prints tables. It prints the legend of each column only once.
type printer struct {
	out       io.Writer
	explained map[string]bool // titles of columns whose legend has been printed
}

// print prints a table of rows under the suite's name. Below the table, it prints the legends of columns that no
// earlier table had, the reasons for skipped rows, and the notes. If all rows were skipped, it prints no table.
func (p *printer) print(suite string, own []Column, rows []report.Row, notes []string) error {
	notes = append(skipped(rows), notes...)
	if !slices.ContainsFunc(rows, func(r report.Row) bool { return r.Skipped == "" }) {
		if _, err := fmt.Fprintf(p.out, "\n%s: not measured here\n", suite); err != nil {
			return err
		}
		return p.printNotes(notes)
	}
	shown := shownColumns(append(slices.Clone(columns), own...), rows)
	table := [][]string{{suite}}
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
	if _, err := fmt.Fprintln(p.out); err != nil {
		return err
	}
	if err := console.Table(p.out, table); err != nil {
		return err
	}
	return p.printNotes(append(p.legends(shown), notes...))
}

// shownColumns returns the columns that have a value in at least one row, except distinguishing columns with only one
// value.
func shownColumns(all []Column, rows []report.Row) (shown []Column) {
	for _, c := range all {
		var values []string
		for _, r := range rows {
			if v := c.Cell(r); v != "" && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		if len(values) > 1 || len(values) == 1 && !c.Distinguishes {
			shown = append(shown, c)
		}
	}
	return shown
}

func orDash(cell string) string {
	if cell == "" {
		return "-"
	}
	return cell
}

// legends returns the legends of the columns that no earlier table had.
func (p *printer) legends(shown []Column) (lines []string) {
	for _, c := range shown {
		if c.Legend != "" && !p.explained[c.Title] {
			lines = append(lines, c.Title+": "+c.Legend)
			p.explained[c.Title] = true
		}
	}
	return lines
}

// printNotes prints each note on one line, but equal notes only once.
func (p *printer) printNotes(notes []string) error {
	for i, note := range notes {
		if slices.Contains(notes[:i], note) {
			continue
		}
		if _, err := fmt.Fprintf(p.out, "  %s\n", note); err != nil {
			return err
		}
	}
	return nil
}

// skipped returns a note for each reason why rows were skipped. Rows of one device with the same reason share a note.
func skipped(rows []report.Row) (notes []string) {
	for i, r := range rows {
		same := func(o report.Row) bool { return o.Device == r.Device && o.Skipped == r.Skipped }
		if r.Skipped == "" || slices.ContainsFunc(rows[:i], same) {
			continue
		}
		var names []string
		for _, o := range rows[i:] {
			if same(o) && !slices.Contains(names, o.Name) {
				names = append(names, o.Name)
			}
		}
		notes = append(notes, fmt.Sprintf("%s%s: -: %s", strings.Join(names, ", "), onDevice(r.Device), r.Skipped))
	}
	return notes
}

// onDevice returns the text " on " and id, or an empty string if id is empty.
func onDevice(id string) string {
	if id == "" {
		return ""
	}
	return " on " + id
}
