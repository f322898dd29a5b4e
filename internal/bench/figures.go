package bench

import (
	"strings"

	"millrace/internal/bench/report"
	"millrace/internal/console"
	"millrace/internal/operator"
)

// The names of figures. Those of one meaning have one name in all groups.
const (
	figureSpeedup     = "speedup over serial"
	figureShare       = "share of ceiling"
	figureOverLongest = "time a batch over its longest stage"
	figureYardstick   = "ratio to yardstick"
	figureYardSeconds = "yardstick"
	figureCores       = "host cores"

	figureGoroutines = "goroutines"
	figurePieces     = "pieces"
	figureOverWhole  = "speedup over the whole payload"
	figureBlocked    = "submitter waiting"
	figureInSubmit   = "submitter waiting within submit"
	figureByClock    = "stages by host clock over events"
	figureOverPlain  = "speedup over the plain kernel"
	figureKernelRate = "kernel rate"
	figureKernelTime = "kernel"
	figureKnee       = "knee"
	figureOverOwn    = "speedup over non-blocking"

	figureAllocation      = "allocation a batch"
	figureLessAllocation  = "less allocation time than synchronous"
	figureOverPreallocate = "time over preallocated"

	figureLatency    = "latency"
	figureLatencyP99 = "latency p99"
	figureCPU        = "CPU a batch"

	figureOfKernel    = "share of the kernel's rate"
	figureOverUniform = "rate over uniform"
	figureOverOne     = "throughput over one device"
)

// bytesText is a size in its largest unit: "16 MiB".
func bytesText(n int) string { return strings.Replace(console.Bytes(float64(n)), ".0 ", " ", 1) }

// specs are the operators as a report names them.
func specs(ops []operator.Operator) string {
	var list []string
	for _, op := range ops {
		list = append(list, op.String())
	}
	return strings.Join(list, ",")
}

// row is what a row of a pipeline over l's batches says beside its figures.
func (t *target) row(group, name string, l load) report.Row {
	return report.Row{
		Group: group, Name: name, Device: t.info.ID, BatchBytes: l.bytes(), Operator: specs(l.operators()),
	}
}
