package bench

import (
	"fmt"
	"strconv"
	"strings"

	"millrace/internal/bench/report"
	"millrace/internal/streams"
)

// column is one of a table. A table has those in which a row has something to say.
type column struct {
	title  string
	legend string // what it means, where the title does not say it
	cell   func(report.Row) string

	group string // the one group that shows it; empty for all

	// apart says that the column is shown only where it tells rows apart.
	apart bool
}

// columns are all columns of all tables, in order.
var columns = []column{
	{title: "device", cell: func(r report.Row) string { return r.Device }, apart: true},
	{title: "operator", cell: operatorCell, apart: true},
	{title: "size", legend: "bytes of the largest batch, or of what stands for one", cell: func(r report.Row) string { return bytesCell(r.BatchBytes) }},
	{title: "payload", legend: "bytes of each payload", cell: func(r report.Row) string { return bytesCell(r.PayloadBytes) }},
	{title: "lanes", cell: func(r report.Row) string { return countCell(r.Lanes) }},
	{title: "goroutines", cell: figure(figureGoroutines, count)},
	{title: "pieces", cell: figure(figurePieces, count)},
	{title: "us/batch (p10-p90)", legend: "wall time over batches: median of the rounds (10th to 90th percentile)", cell: batchCell},
	{title: "GB/s", cell: rateCell},
	{title: "in", legend: "copy in of single batches by device events, median, us", cell: stage(streams.CopyInEngine)},
	{title: "compute", legend: "kernels likewise; kernels of several lanes share the device, so it holds waiting for others", cell: stage(streams.ComputeEngine)},
	{title: "out", legend: "copy out likewise", cell: stage(streams.CopyOutEngine)},
	{title: "kernel GB/s", legend: "payload bytes over the kernels' time, nothing beside them", cell: figure(figureKernelRate, decimal)},
	{title: "x serial", legend: "speedup over the row serial", cell: figure(figureSpeedup, times)},
	{title: "x whole", legend: "speedup over the payload in one piece", cell: figure(figureOverWhole, times)},
	{title: "x plain", legend: "speedup over the plain kernel, by time a batch", cell: figure(figureOverPlain, times)},
	{title: "x own", legend: "speedup over the row non-blocking", cell: figure(figureOverOwn, times)},
	{title: "x one", legend: "throughput over that of the fastest device alone", cell: figure(figureOverOne, times)},
	{title: "ceiling", legend: "the longest stage when all run (a copy measured in this run, or the kernel alone) over the time a batch", cell: figure(figureShare, share)},
	{title: "of kernel", legend: "rate over that of the kernels alone", cell: figure(figureOfKernel, share)},
	{title: "x uniform", legend: "kernel rate over that of payloads of one size, the same bytes in all", cell: figure(figureOverUniform, times)},
	{title: "waiting", legend: "share of the time in which the submitting goroutine had to wait, for a batch to come back or within Submit", cell: figure(figureBlocked, share)},
	{title: "in submit", legend: "the part of it within Submit, where it can do nothing else", cell: figure(figureInSubmit, share)},
	{title: "clock/events", legend: "stages by the host's clock over stages by events, the cost of waiting taken off", cell: figure(figureByClock, times)},
	{title: "alloc us", legend: "host time in allocation and free calls, a batch", cell: figure(figureAllocation, micros)},
	{title: "less", legend: "how much less of it than with synchronous calls", cell: figure(figureLessAllocation, percent)},
	{title: "x prealloc", legend: "time a batch over that with preallocated scratch", cell: figure(figureOverPreallocate, times)},
	{title: "p50 us", legend: "from the payload on the heap to its results there, nothing else going on", cell: figure(figureLatency, micros)},
	{title: "p99 us", cell: figure(figureLatencyP99, micros)},
	{title: "CPU us", legend: "processor time of the process, a batch", cell: figure(figureCPU, micros)},
	{title: "cores", group: groupOperators, legend: "processor time of the process over wall time", cell: figure(figureCores, decimal)},
	{title: "knee", legend: "the least lanes within 2 % of the best throughput", cell: kneeCell},
	{title: "yardstick us", legend: "the yardstick's kernel launch and wait, without copies: no like for like", cell: figure(figureYardSeconds, micros)},
}

// yardstickColumn comes last where the yardstick is asked.
var yardstickColumn = column{
	title: "yardstick", legend: "time of the yardstick, plain CUDA C++, over ours: above 1 this is faster", cell: figure(figureYardstick, times),
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
	return fmt.Sprintf("%s (%s-%s)", micros(r.Batch.Median), micros(r.Batch.Low), micros(r.Batch.High))
}

// rateCell is the rate of batches that are all of one size and there for their bytes.
func rateCell(r report.Row) string {
	if batchCell(r) == "" || r.Group == groupAlloc {
		return ""
	}
	return decimal(float64(r.BatchBytes) / r.Batch.Median / 1e9)
}

func stage(e streams.Engine) func(report.Row) string {
	return func(r report.Row) string {
		s, ok := r.Stages[e.String()]
		if !ok {
			return ""
		}
		return micros(s.Median)
	}
}

func kneeCell(r report.Row) string {
	if _, ok := r.Figure(figureKnee); ok {
		return "<- knee"
	}
	return ""
}

// figure is the median of a figure.
func figure(name string, write func(float64) string) func(report.Row) string {
	return func(r report.Row) string {
		f, ok := r.Figure(name)
		if !ok {
			return ""
		}
		return write(f.Median)
	}
}

func count(v float64) string   { return strconv.Itoa(int(v)) }
func times(v float64) string   { return fmt.Sprintf("%.3gx", v) }
func percent(v float64) string { return fmt.Sprintf("%.1f %%", v) }
func share(v float64) string   { return percent(100 * v) }
func micros(v float64) string  { return significant(1e6 * v) }
func decimal(v float64) string { return significant(v) }

// significant writes a number with three significant digits, or all before the point.
func significant(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
