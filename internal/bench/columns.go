package bench

import (
	"fmt"
	"strconv"
	"strings"

	"millrace/internal/bench/report"
	"millrace/internal/streams"
)

// Column is one column of a table. A table omits columns that are empty in all of its rows.
type Column struct {
	Title  string
	Legend string                  // explanation; empty if the title is enough
	Cell   func(report.Row) string // returns an empty string if the row has no value

	distinguishes bool // show the column only if its cells differ
}

// columns are the columns of every suite, in order. A suite's own columns follow them.
var columns = []Column{
	{Title: "device", Cell: func(r report.Row) string { return r.Device }, distinguishes: true},
	{Title: "operator", Cell: operatorCell, distinguishes: true},
	{Title: "size", Legend: "bytes of the largest batch, or of what takes its place", Cell: func(r report.Row) string { return bytesCell(r.BatchBytes) }},
	{Title: "payload", Legend: "bytes of each payload", Cell: func(r report.Row) string { return bytesCell(r.PayloadBytes) }},
	{Title: "lanes", Cell: func(r report.Row) string { return countCell(r.Lanes) }},
	{Title: "pieces", Cell: FigureCell(figurePieces, count)},
	{Title: "us/batch (p10-p90)", Legend: "wall time per batch: median of the rounds (10th to 90th percentile)", Cell: batchCell},
	{Title: "GB/s", Cell: rateCell},
	{Title: "in", Legend: "copy in of a batch by device events, median, us", Cell: stageCell(streams.CopyInEngine)},
	{Title: "compute", Legend: "kernels of a batch by device events, median, us; lanes share the device, so it includes waiting for other lanes", Cell: stageCell(streams.ComputeEngine)},
	{Title: "out", Legend: "copy out of a batch by device events, median, us", Cell: stageCell(streams.CopyOutEngine)},
	{Title: "kernel GB/s", Legend: "payload bytes over the time of the kernels, which run alone", Cell: FigureCell(figureKernelRate, Number)},
	{Title: "x CUDA serial", Legend: "speedup over the serial schedule of the baseline program, plain CUDA C++ measured in this run", Cell: FigureCell(figureOverCUDASerial, times)},
	{Title: "x own serial", Legend: "speedup over our own serial schedule (row serial of group schedules), not over plain CUDA", Cell: FigureCell(figureSpeedup, times)},
	{Title: "x whole", Legend: "speedup over the payload in one piece", Cell: FigureCell(figureOverWhole, times)},
	{Title: "x plain", Legend: "speedup over the row plain", Cell: FigureCell(figureOverPlain, times)},
	{Title: "x non-blocking", Legend: "speedup over the row non-blocking", Cell: FigureCell(figureOverOwn, times)},
	{Title: "x one", Legend: "throughput over that of the fastest device alone", Cell: FigureCell(figureOverOne, times)},
	{Title: "ceiling", Legend: "the longest stage when all engines run (a copy measured in this run, or the kernel alone) over the time per batch", Cell: FigureCell(figureShare, share)},
	{Title: "of kernel", Legend: "rate over that of the kernels alone", Cell: FigureCell(figureOfKernel, share)},
	{Title: "x uniform", Legend: "kernel rate over that of payloads of one size with as many bytes in all", Cell: FigureCell(figureOverUniform, times)},
	{Title: "waiting", Legend: "share of the time in which the submitting goroutine waits, for a batch to come back or within Submit", Cell: FigureCell(figureBlocked, share)},
	{Title: "in submit", Legend: "the part of it within Submit, where the goroutine can do nothing else", Cell: FigureCell(figureInSubmit, share)},
	{Title: "clock/events", Legend: "stage times by the host's clock, less the cost of waiting, over those by device events", Cell: FigureCell(figureByClock, times)},
	{Title: "alloc us", Legend: "host time in allocation and free calls per batch", Cell: FigureCell(figureAllocation, Micros)},
	{Title: "less", Legend: "how much shorter that is than with synchronous calls", Cell: FigureCell(figureLessAllocation, percent)},
	{Title: "x prealloc", Legend: "time per batch over that with preallocated scratch", Cell: FigureCell(figureOverPreallocate, times)},
	{Title: "p50 us", Legend: "from the payload on the heap to its results there, while nothing else runs", Cell: FigureCell(figureLatency, Micros)},
	{Title: "p99 us", Cell: FigureCell(figureLatencyP99, Micros)},
	{Title: "CPU us", Legend: "processor time of the process per batch", Cell: FigureCell(figureCPU, Micros)},
	{Title: "knee", Legend: "the fewest lanes within 2 % of the best throughput", Cell: FigureCell(figureKnee, func(float64) string { return "<- knee" })},
	{Title: "baseline us", Legend: "time of the same work in the baseline program, plain CUDA C++ (in group completion: a kernel launch and the wait for it, without copies)", Cell: FigureCell(figureBaseline, Micros)},
	{Title: "x baseline", Legend: "time of the baseline program over ours: above 1, ours is faster", Cell: FigureCell(figureOverBaseline, times)},
}

// CoresColumn shows the figure "host cores". Suites add it if the figure applies to them.
var CoresColumn = Column{Title: "cores", Legend: "processor time of the process over wall time", Cell: FigureCell(FigureCores, Number)}

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

func countCell(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func batchCell(r report.Row) string {
	if _, single := r.Figure(figureLatency); single || r.Batch == nil {
		return ""
	}
	return withSpread(*r.Batch, Micros)
}

// rateCell returns the byte rate of a row, if its batches all have the same size.
func rateCell(r report.Row) string {
	if batchCell(r) == "" || r.Group == groupAlloc {
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

// FigureCell formats the median of a figure.
func FigureCell(name string, write func(float64) string) func(report.Row) string {
	return cell(name, func(s report.Spread) string { return write(s.Median) })
}

// SpreadCell formats the median of a figure with its 10th and 90th percentile.
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
