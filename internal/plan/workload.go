package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/streams"
)

// MaxFile is the maximum size of a file that Load reads, in bytes.
const MaxFile = 256 << 20

// Workload holds the measurements of one operator on one device.
type Workload struct {
	Device   string // report.Device.ID, or the name of the process in a trace
	Kind     string // report.Device.Kind
	Name     string // the device's display name; empty if the file has none
	Operator string // empty if the file doesn't name it
	Rows     []Row

	// Host is the host's time per submission; 0 if the file doesn't contain it.
	Host time.Duration
}

// Row is the measurement of one schedule with batches of one size.
type Row struct {
	Bytes    int              // payload bytes per batch
	Schedule streams.Schedule // streams.Serial, or the worker's schedule with the row's number of buffers
	Lanes    int              // in flight

	Seconds float64                     // wall seconds per batch in steady state; 0 if unknown
	Stages  [streams.NumEngines]float64 // median seconds of a batch's stages; 0 if unknown
	Samples int                         // number of samples of the medians
	CPU     float64                     // processor seconds of the process per batch; 0 if unknown
}

// alone reports whether the row has one batch on the device at a time. If each engine has its own stream, a lane's two
// batches may overlap.
func (r Row) alone() bool {
	return r.Lanes == 1 && (r.Schedule.Buffers == 1 || r.Schedule.Topology == streams.StreamPerLane)
}

// serial reports whether the host waits for each stage.
func (r Row) serial() bool { return r.Schedule.HostWaits }

// timed reports whether every stage has a time.
func (r Row) timed() bool { return r.Stages[0] > 0 && r.Stages[1] > 0 && r.Stages[2] > 0 }

// alike reports whether both rows have the same schedule and size.
func (r Row) alike(o Row) bool { return r.compare(o) == 0 }

// compare orders rows by size, then the serial schedule first, then by lanes and buffers.
func (r Row) compare(o Row) int {
	order := func(r Row) int {
		if r.serial() {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(r.Bytes, o.Bytes), cmp.Compare(order(r), order(o)), cmp.Compare(r.Lanes, o.Lanes),
		cmp.Compare(r.Schedule.Buffers, o.Schedule.Buffers))
}

// Load reads a bench report or a trace. It returns a workload for each device and operator that has usable rows, in the
// order of the file. The error for any other input says what to provide.
func Load(from io.Reader) ([]Workload, error) {
	text, err := io.ReadAll(io.LimitReader(from, MaxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxFile {
		return nil, fmt.Errorf("the file is longer than %d bytes: take a shorter trace", MaxFile)
	}
	var head struct {
		Version     *json.RawMessage `json:"version"`
		TraceEvents *json.RawMessage `json:"traceEvents"`
	}
	const want = "give a report of worker bench --json FILE, or a trace of worker bench --trace FILE, worker demo --timeline FILE or /trace"
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("the file is not a JSON object (%w): %s", err, want)
	}
	switch {
	case head.TraceEvents != nil:
		return fromTrace(*head.TraceEvents)
	case head.Version != nil:
		r, err := report.Read(bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		return fromReport(r)
	}
	return nil, errors.New("the file is neither a bench report nor a trace: " + want)
}

// otherStreams lists rows of the group streams that use another kind of stream than the worker does, and so another
// schedule.
var otherStreams = []string{"legacy-default", "per-thread-default"}

// scheduleFor returns the schedule that the worker runs on that kind of device for batches of that size. How the host
// learns of a completion is a latency in the model, so the simulated device can always notify it.
func scheduleFor(kind string, bytes int) streams.Schedule {
	s := streams.Overlapped
	if kind == "cuda" {
		s = streams.Triple
	}
	if s.Topology == streams.StreamBySize {
		s.Topology = streams.StreamPerLane
		if bytes >= s.SharedFrom {
			s.Topology = streams.StreamPerStage
		}
	}
	s.Completion = streams.ByNotify
	return s
}

// rowOf extracts a plan's data from a report's row, or returns false if the row has none.
func rowOf(r report.Row, kind string) (Row, bool) {
	row := Row{Bytes: r.BatchBytes, Lanes: r.Lanes, Schedule: scheduleFor(kind, r.BatchBytes)}
	switch {
	case r.Skipped != "" || r.Batch == nil || r.BatchBytes < 1 || r.BatchBytes > MaxBatchBytes || r.Device == "all":
		return row, false
	case r.Group == "schedules" && r.Name == streams.Serial.Name:
		row.Schedule, row.Lanes = streams.Serial, 1
	case r.Group == "schedules" && r.Name == "triple":
	case r.Group == "streams" && !slices.Contains(otherStreams, r.Name):
	default:
		return row, false
	}
	if row.Lanes < 1 || row.Lanes > MaxLanes {
		return row, false
	}
	if r.Buffers == 1 || r.Buffers == 2 {
		row.Schedule.Buffers = r.Buffers
	}
	row.Seconds, row.Samples = r.Batch.Median, 1
	for i, stage := range deviceStages {
		row.Stages[i] = r.Stages[stage.String()].Median
	}
	if cores, some := r.Figure("host cores"); some {
		row.CPU = max(cores.Median, 0) * row.Seconds
	}
	return row, true
}

// check returns an error for values that no measurement gives.
func (r Row) check() error {
	const day = 24 * 3600
	for _, t := range append(r.Stages[:], r.Seconds) {
		if !(t >= 0 && t < day) {
			return fmt.Errorf("%v seconds is not a valid time for a batch or a stage: measure again with worker bench --json FILE", t)
		}
	}
	return nil
}

// fromReport groups a report's rows by device and operator.
func fromReport(r *report.Report) ([]Workload, error) {
	var found []Workload
	for _, from := range r.Rows {
		on := deviceOf(r, from.Device)
		row, ok := rowOf(from, on.Kind)
		if !ok {
			continue
		}
		if err := row.check(); err != nil {
			return nil, fmt.Errorf("row %s of group %s: %w", from.Name, from.Group, err)
		}
		operator := kernelOf(from.Operator)
		at := slices.IndexFunc(found, func(w Workload) bool { return w.Device == from.Device && w.Operator == operator })
		if at < 0 {
			at = len(found)
			found = append(found, Workload{Device: from.Device, Kind: on.Kind, Name: on.Name, Operator: operator})
		}
		found[at].add(row)
		if f, some := from.Figure("host seconds a batch"); some {
			found[at].Host = seconds(min(max(f.Median, 0), row.Seconds))
		}
	}
	found = slices.DeleteFunc(found, func(w Workload) bool { return !slices.ContainsFunc(w.Rows, Row.timed) })
	if len(found) == 0 {
		return nil, errors.New("the report has no row to plan from: it needs batch_seconds and stage_seconds in group streams, or in the rows " +
			"serial or triple of group schedules: run worker bench schedules streams --json FILE")
	}
	return found, nil
}

// add adds the row, unless there is one of the same kind: the group that comes first in the report wins.
func (w *Workload) add(row Row) {
	if !slices.ContainsFunc(w.Rows, row.alike) {
		w.Rows = append(w.Rows, row)
	}
}

// kernelOf returns the operator, without the parameters if it is mix. A bench run chooses the rounds of mix for each
// batch size so that its kernel takes as long as its copy, and all of these count as one operator.
func kernelOf(operator string) string {
	if name, _, _ := strings.Cut(operator, "?"); name == "mix" {
		return name
	}
	return operator
}

// deviceOf returns the report's device with that ID. If there is none, it returns a device of the kind that the ID
// indicates.
func deviceOf(r *report.Report, id string) report.Device {
	for _, d := range r.Devices {
		if d.ID == id {
			return d
		}
	}
	return report.Device{Kind: kindOf(id)}
}

// sizes returns the batch sizes of the rows, in ascending order.
func (w *Workload) sizes() []int {
	var sizes []int
	for _, r := range w.Rows {
		sizes = append(sizes, r.Bytes)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// single returns the row of that size with one lane and two buffers, or false if there is none.
func (w *Workload) single(size int) (Row, bool) {
	i := slices.IndexFunc(w.Rows, func(r Row) bool {
		return r.Bytes == size && r.Lanes == 1 && !r.serial() && r.Schedule.Buffers == 2 && r.Seconds > 0
	})
	if i < 0 {
		return Row{}, false
	}
	return w.Rows[i], true
}

// widest returns the rows of that size with the most lanes, widest first, at most mostWidest of them. It never returns
// a row with one lane.
func (w *Workload) widest(size int) []Row {
	rows := slices.DeleteFunc(slices.Clone(w.Rows), func(r Row) bool {
		return r.Bytes != size || r.serial() || r.Lanes < 2 || r.Seconds == 0
	})
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(b.Lanes, a.Lanes) })
	n := min(len(rows), mostWidest)
	for n > 1 && rows[n-1].Lanes < int(streams.NumEngines) {
		n-- // too few lanes to keep every engine busy
	}
	return rows[:n]
}

// mostWidest is the number of wide rows to fit per size. With two rows, an outlier has half the weight.
const mostWidest = 2

// seconds converts a number of seconds to a duration.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
