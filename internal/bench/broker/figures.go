package broker

import (
	"millrace/internal/bench"
	"millrace/internal/bench/report"
	"millrace/internal/console"
)

// The names of figures in the report.
const (
	figurePayloads = "payloads a second"
	figureBytes    = "payload bytes a second"
	figureFill     = "payloads a batch"

	figureRecords     = "records a second"
	figureWire        = "message bytes a second"
	figureCompression = "record bytes over message bytes"

	figureOverSingle       = "records a second over one record per message"
	figureOverUncompressed = "records a second over uncompressed frames"
	figureOverExternal     = "records a second over the program of --external"

	figureOverAsync  = "payloads a second over null-async"
	figureOverNull   = "payloads a second over the null worker of the same shape"
	figureOverPlain  = "payloads a second over go-worker"
	figureOverShared = "payloads a second over millrace-shared"
	figureOverUsual  = "payloads a second over the same with the usual connections"
	figureOverWindow = "payloads a second over the same without exactly once"

	figureLatency    = "received to stored"
	figureLatencyP99 = "received to stored p99"

	figureResident = "resident at most"
	figureBefore   = "resident before"
	figureBuffers  = "batch buffers"
)

// The location of the server, and its effect on the figures.
const (
	oneProcess        = "The server runs in this process, over TCP on loopback, and shares the cores and the memory with every worker."
	ownProcess        = "The server runs in its own process, over TCP on loopback. It shares the machine with every worker, but the columns of cores and memory do not include it."
	oneProcessCluster = "Three servers run in this process, over TCP on loopback, and share the cores and the memory with every worker. Every stream has three replicas."
	ownProcessCluster = "Three servers run in processes of their own, over TCP on loopback. Every stream has three replicas. The servers share the machine with every worker, but the columns of cores and memory do not include them."

	elsewhere = "The server runs elsewhere, so cores and memory are the worker's alone."
)

// places describes the location of servers that the bench starts, by whether they have their own processes and whether there are several.
var places = map[bool]map[bool]string{
	false: {false: oneProcess, true: oneProcessCluster},
	true:  {false: ownProcess, true: ownProcessCluster},
}

// columns are the suite's own columns.
var columns = []bench.Column{
	{
		Title: "payloads/s (p10-p90)", Cell: bench.SpreadCell(figurePayloads, bench.Number),
		Legend: "from before the first delivery until every result is stored and the server has every acknowledgement",
	},
	{Title: "framing", Legend: "MILLRACE_FRAMING; with none, a message is one record", Cell: func(r report.Row) string { return r.Framing }},
	{Title: "compression", Cell: func(r report.Row) string { return r.Compression }},
	{
		Title: "records/s (p10-p90)", Cell: bench.SpreadCell(figureRecords, bench.Number),
		Legend: "records, which are the payloads of operators, in the same time as payloads/s",
	},
	{Title: "MB/s", Legend: "payload bytes", Cell: bench.FigureCell(figureBytes, func(v float64) string { return bench.Number(v / 1e6) })},
	{Title: "wire MB/s", Legend: "bytes of messages, compressed and with their framing", Cell: bench.FigureCell(figureWire, func(v float64) string { return bench.Number(v / 1e6) })},
	{Title: "ratio", Legend: "record bytes over bytes of messages", Cell: bench.FigureCell(figureCompression, bench.Number)},
	bench.CoresColumn,
	{Title: "a batch", Legend: "payloads per batch, or per group of results that are stored at once", Cell: bench.FigureCell(figureFill, bench.Number)},
	{Title: "x async", Legend: "payloads/s over those of null-async", Cell: bench.FigureCell(figureOverAsync, bench.Number)},
	{
		Title: "x null", Cell: bench.FigureCell(figureOverNull, bench.Number),
		Legend: "payloads/s or records/s over those of the null worker of the same shape with the same messages: null-batch with shared delivery, null-pinned with exclusive delivery",
	},
	{Title: "x single", Legend: "records/s over those of the same worker with one record per message", Cell: bench.FigureCell(figureOverSingle, bench.Number)},
	{Title: "x uncompressed", Legend: "records/s over those of the same worker with uncompressed frames", Cell: bench.FigureCell(figureOverUncompressed, bench.Number)},
	{Title: "x external", Legend: "records/s over those of the program of --external with the same messages", Cell: bench.FigureCell(figureOverExternal, bench.Number)},
	{Title: "x go", Legend: "payloads/s over those of go-worker with the same operators", Cell: bench.FigureCell(figureOverPlain, bench.Number)},
	{Title: "x shared", Legend: "payloads/s over those of millrace-shared with the same operators", Cell: bench.FigureCell(figureOverShared, bench.Number)},
	{Title: "x usual", Legend: "payloads/s over those of the same worker with its default number of connections", Cell: bench.FigureCell(figureOverUsual, bench.Number)},
	{Title: "x window", Legend: "payloads/s over those of the same worker with MILLRACE_EXACTLY_ONCE=off", Cell: bench.FigureCell(figureOverWindow, bench.Number)},
	{Title: "p50 us", Legend: "from a payload's arrival in the client until the server has confirmed its result", Cell: bench.FigureCell(figureLatency, bench.Micros)},
	{Title: "p99 us", Cell: bench.FigureCell(figureLatencyP99, bench.Micros)},
	{Title: "resident", Legend: "the most memory that the process uses, by resident pages", Cell: bench.FigureCell(figureResident, console.Bytes)},
	{Title: "before", Legend: "the same with the streams full, before the worker runs", Cell: bench.FigureCell(figureBefore, console.Bytes)},
	{Title: "buffers", Legend: "the host memory of the pipelines' batches, pinned on a GPU; resident may or may not include it", Cell: bench.FigureCell(figureBuffers, console.Bytes)},
}
