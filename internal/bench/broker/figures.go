package broker

import (
	"fmt"
	"math"
	"strconv"

	"millrace/internal/bench"
	"millrace/internal/bench/report"
	"millrace/internal/console"
)

// The names of figures, as the report has them.
const (
	figurePayloads = "payloads a second"
	figureBytes    = "payload bytes a second"
	figureCores    = "host cores"
	figureFill     = "payloads a batch"

	figureOverAsync  = "payloads a second over null-async"
	figureOverNull   = "payloads a second over the null worker of the same shape"
	figureOverPlain  = "payloads a second over go-worker"
	figureOverShared = "payloads a second over millrace-shared"
	figureOverUsual  = "payloads a second over the same with the usual connections"

	figureLatency    = "received to stored"
	figureLatencyP99 = "received to stored p99"

	figureResident = "resident at most"
	figureBefore   = "resident before"
	figureBuffers  = "batch buffers"
)

// Where the server runs, and what that means for the figures.
const (
	oneProcess = "The server runs in this process, over TCP on loopback, and shares the cores and the memory with every worker."
	ownProcess = "The server runs in a process of its own, over TCP on loopback: it shares the machine with every worker, and is not in the columns of cores and memory."
	elsewhere  = "The server runs elsewhere: cores and memory are the worker's alone."
)

// columns are the group's own.
var columns = []bench.Column{
	{
		Title: "payloads/s (p10-p90)", Figure: figurePayloads,
		Legend: "from before the first delivery until every result is stored and the server has every acknowledgement",
		Write: func(s report.Spread) string {
			return fmt.Sprintf("%s (%s-%s)", number(s.Median), number(s.Low), number(s.High))
		},
	},
	{Title: "MB/s", Legend: "payload bytes", Figure: figureBytes, Write: func(s report.Spread) string { return number(s.Median / 1e6) }},
	{Title: "cores", Legend: "processor time of the process over wall time", Figure: figureCores, Write: plainly},
	{Title: "a batch", Legend: "payloads a batch, or a group of results that are stored at once", Figure: figureFill, Write: plainly},
	{Title: "x async", Legend: "payloads/s over those of null-async", Figure: figureOverAsync, Write: plainly},
	{Title: "x null", Legend: "over those of the null worker of the same shape: null-batch with shared delivery, null-pinned with exclusive", Figure: figureOverNull, Write: plainly},
	{Title: "x go", Legend: "over those of go-worker with the same operators", Figure: figureOverPlain, Write: plainly},
	{Title: "x shared", Legend: "over those of millrace-shared with the same operators", Figure: figureOverShared, Write: plainly},
	{Title: "x usual", Legend: "over those of the same with as many connections as it has by default", Figure: figureOverUsual, Write: plainly},
	{
		Title: "p50 us", Figure: figureLatency, Legend: "from a payload's arrival in the client until the server has confirmed its result",
		Write: func(s report.Spread) string { return number(1e6 * s.Median) },
	},
	{Title: "p99 us", Figure: figureLatencyP99, Write: func(s report.Spread) string { return number(1e6 * s.Median) }},
	{Title: "resident", Legend: "memory of the process at most, by resident pages", Figure: figureResident, Write: size},
	{Title: "before", Legend: "the same with the streams full, before the worker runs", Figure: figureBefore, Write: size},
	{Title: "buffers", Legend: "of it, or beside it, the pipelines' batches on the host: pinned on a GPU", Figure: figureBuffers, Write: size},
}

func plainly(s report.Spread) string { return number(s.Median) }
func size(s report.Spread) string    { return console.Bytes(s.Median) }

// number writes three significant digits, or all before the point.
func number(v float64) string {
	if v >= 100 {
		return console.Count(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
