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

// MaxFile bounds a file that Load reads, in bytes.
const MaxFile = 256 << 20

// Workload is what a file says of one operator's batches on one device.
type Workload struct {
	Device   string // report.Device.ID; the process's name in a trace
	Kind     string // report.Device.Kind
	Name     string // of the device, for people; empty where the file has none
	Operator string // empty where the file does not say
	Rows     []Row

	// Host is the time that the host works on the submission of one batch; 0 where the file does not say.
	Host time.Duration
}

// Row is one way of running batches of one size.
type Row struct {
	Bytes    int              // payload bytes a batch
	Schedule streams.Schedule // streams.Serial, or the worker's with the row's buffers
	Lanes    int              // in flight

	Seconds float64                     // wall seconds a batch in steady state; 0 where not known
	Stages  [streams.NumEngines]float64 // seconds of a batch's stages, medians; 0 where not known
	Samples int                         // that the medians are of
	CPU     float64                     // processor seconds a batch that the process took; 0 where not known
}

// alone says whether the row has one batch on the device at a time. A lane's two batches may overlap where each engine
// has a stream.
func (r Row) alone() bool {
	return r.Lanes == 1 && (r.Schedule.Buffers == 1 || r.Schedule.Topology == streams.StreamPerLane)
}

// serial says whether the host waits for each stage.
func (r Row) serial() bool { return r.Schedule.HostWaits }

// timed says whether every stage has a time.
func (r Row) timed() bool { return r.Stages[0] > 0 && r.Stages[1] > 0 && r.Stages[2] > 0 }

// alike says whether both rows are of one schedule and size.
func (r Row) alike(o Row) bool { return r.compare(o) == 0 }

// compare orders rows by size, the serial schedule first, then by lanes and buffers.
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

// Load reads a bench report or a trace, and says of anything else what it should be. A workload comes back for each
// device and operator that has rows to plan from, in the order of the file.
func Load(from io.Reader) ([]Workload, error) {
	text, err := io.ReadAll(io.LimitReader(from, MaxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxFile {
		return nil, fmt.Errorf("it is longer than %d bytes: take a shorter trace", MaxFile)
	}
	var head struct {
		Version     *json.RawMessage `json:"version"`
		TraceEvents *json.RawMessage `json:"traceEvents"`
	}
	const want = "give a report of worker bench --json FILE, or a trace of worker bench --trace FILE, worker demo --timeline FILE or /trace"
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("it is no JSON object (%w): %s", err, want)
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
	return nil, errors.New("it is neither a bench report nor a trace: " + want)
}

// otherStreams are rows of the group streams that run on streams of another kind than the worker's, and so under
// another schedule.
var otherStreams = []string{"legacy-default", "per-thread-default"}

// scheduleFor is the schedule that the worker runs on a device of that kind, for batches of that size. How the host
// learns that a batch is finished is a latency of the model, so the simulated device may always call it.
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

// rowOf takes from the row of a device of that kind what a plan can use; false where that is nothing.
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

// check says what no measurement gives.
func (r Row) check() error {
	const day = 24 * 3600
	for _, t := range append(r.Stages[:], r.Seconds) {
		if !(t >= 0 && t < day) {
			return fmt.Errorf("%v seconds for a batch or a stage of it cannot be: measure again with worker bench --json FILE", t)
		}
	}
	return nil
}

// fromReport sorts a report's rows by device and operator.
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
		return nil, errors.New("the report has no row to plan from, with batch_seconds and stage_seconds in group streams, or of " +
			"serial or triple in group schedules: run worker bench schedules streams --json FILE")
	}
	return found, nil
}

// add keeps the row, unless there is one of the same kind: the first is the one of the group that came first.
func (w *Workload) add(row Row) {
	if !slices.ContainsFunc(w.Rows, row.alike) {
		w.Rows = append(w.Rows, row)
	}
}

// kernelOf is the operator without what a bench run makes of it: mix gets as many rounds for each batch size as its
// copy takes, and is meant to be one operator all the same.
func kernelOf(operator string) string {
	if name, _, _ := strings.Cut(operator, "?"); name == "mix" {
		return name
	}
	return operator
}

// deviceOf is the report's device of that ID; where it does not say, one of the kind that the ID tells.
func deviceOf(r *report.Report, id string) report.Device {
	for _, d := range r.Devices {
		if d.ID == id {
			return d
		}
	}
	return report.Device{Kind: kindOf(id)}
}

// sizes are the batch sizes of the rows, smallest first.
func (w *Workload) sizes() []int {
	var sizes []int
	for _, r := range w.Rows {
		sizes = append(sizes, r.Bytes)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// single is the row of that size with one lane and two buffers; false where there is none.
func (w *Workload) single(size int) (Row, bool) {
	i := slices.IndexFunc(w.Rows, func(r Row) bool {
		return r.Bytes == size && r.Lanes == 1 && !r.serial() && r.Schedule.Buffers == 2 && r.Seconds > 0
	})
	if i < 0 {
		return Row{}, false
	}
	return w.Rows[i], true
}

// widest are the rows of that size with the most lanes, mostWidest of them at most and the widest first. None
// has one lane.
func (w *Workload) widest(size int) []Row {
	rows := slices.DeleteFunc(slices.Clone(w.Rows), func(r Row) bool {
		return r.Bytes != size || r.serial() || r.Lanes < 2 || r.Seconds == 0
	})
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(b.Lanes, a.Lanes) })
	n := min(len(rows), mostWidest)
	for n > 1 && rows[n-1].Lanes < int(streams.NumEngines) {
		n-- // too few lanes to keep every engine at work
	}
	return rows[:n]
}

// mostWidest is how many wide rows of a size are fitted: with two, one that came out badly weighs half.
const mostWidest = 2

// seconds is a duration from a measured figure.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
