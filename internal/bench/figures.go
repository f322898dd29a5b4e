package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"millrace/internal/console"
	"millrace/internal/operator"
)

// The names of figures in the report. A name means the same in all suites. Other programs read these names, so they
// don't change. Two of them still call the baseline program the yardstick.
const (
	figureSpeedup        = "speedup over serial" // over our own serial schedule
	figureOverCUDASerial = "speedup over plain CUDA serial"
	figureShare          = "share of ceiling"
	figureOverLongest    = "time a batch over its longest stage"
	figureOverBaseline   = "ratio to yardstick"
	figureBaseline       = "yardstick"

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

// FigureCores is the processor time of the process divided by wall time. CoresColumn shows it.
const FigureCores = "host cores"

// bytesText formats a size in its largest unit: "16 MiB".
func bytesText(n int) string { return strings.Replace(console.Bytes(float64(n)), ".0 ", " ", 1) }

// Number formats a number with three significant digits, or with all digits before the decimal point: "0.0123",
// "1,234".
func Number(v float64) string {
	if v >= 100 {
		return console.Count(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Micros formats seconds as microseconds.
func Micros(seconds float64) string { return Number(1e6 * seconds) }

func count(v float64) string   { return strconv.Itoa(int(v)) }
func times(v float64) string   { return fmt.Sprintf("%.3gx", v) }
func percent(v float64) string { return fmt.Sprintf("%.1f %%", v) }
func share(v float64) string   { return percent(100 * v) }

// Specs formats operators as in a report and a header.
func Specs(ops []operator.Operator) string {
	var list []string
	for _, op := range ops {
		list = append(list, op.String())
	}
	return strings.Join(list, ",")
}

// Parse parses a list of operators that is fixed in a suite's source. It panics if the list is invalid.
func Parse(list string) []operator.Operator {
	ops, err := operator.ParseList(list)
	if err != nil {
		panic("bench: " + err.Error())
	}
	return ops
}
