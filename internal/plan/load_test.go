package plan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

func TestFilesThatCannotBeUsed(t *testing.T) {
	row := func(fields string) string {
		return `{"version": 1, "rows": [{"group": "streams", "name": "4", "device": "d", "lanes": 4, "batch_bytes": 9, ` + fields + `}]}`
	}
	event := `{"name": "batch 1", "cat": "copy_in", "ph": "X", "pid": 1, "ts": %s, "dur": 1, "args": {"bytes": 5, "lane": 0}}`
	for text, want := range map[string]string{
		"":                             "not a JSON object",
		"batch,seconds":                "worker bench --json FILE, or a trace",
		"[1, 2]":                       "not a JSON object",
		"{}":                           "neither a bench report nor a trace",
		`{"version": 2, "rows": [{}]}`: "version 2, and this program reads version 1",
		`{"version": 1, "rows": []}`:   "no rows",
		`{"version": 1, "rows": [{"group": "copy", "name": "pinned in"}]}`: "run worker bench schedules streams --json FILE",
		row(`"skipped": "no GPU"`):                                                           "no row to plan from",
		row(`"batch_seconds": {"median": 0.001}`):                                            "no row to plan from",
		row(`"batch_seconds": {"median": -1}`):                                               "row 4 of group streams: -1 seconds",
		row(`"batch_seconds": {"median": 1}, "stage_seconds": {"compute": {"median": 1e9}}`): "not a valid time for a batch or a stage: measure again",
		`{"traceEvents": 5}`:                                                                 "the trace is damaged",
		`{"traceEvents": []}`:                                                                "no batch with a copy in, a kernel and a copy out",
		`{"traceEvents": [` + fmt.Sprintf(event, "0") + `]}`:                                 "no batch with",
		`{"traceEvents": [` + fmt.Sprintf(event, "-7") + `]}`:                                "batch 1 copy_in cannot run at -7 us",
	} {
		_, err := Load(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: error %v, want one that says %q", text, err, want)
		}
	}
	if _, err := Load(unreadable{}); !errors.Is(err, errUnreadable) {
		t.Errorf("Load = %v, want what the file says", err)
	}
}

type unreadable struct{}

var errUnreadable = errors.New("input/output error")

func (unreadable) Read([]byte) (int, error) { return 0, errUnreadable }

// Load ignores rows of other schedules than the worker's, of several devices together and of other groups. It plans
// each device and operator separately.
func TestRowsThatAPlanTakes(t *testing.T) {
	row := func(group, name, device, operator string, lanes, buffers int, seconds float64) report.Row {
		return report.Row{
			Group: group, Name: name, Device: device, Operator: operator, Lanes: lanes, Buffers: buffers, BatchBytes: mib, Batch: spread(seconds),
			Stages: map[string]report.Spread{"copy_in": *spread(1e-5), "compute": *spread(2e-5), "copy_out": *spread(3e-5)},
		}
	}
	w := load(t, &report.Report{Version: report.Version, Rows: []report.Row{
		row("schedules", "serial", "GPU-1", "mix?rounds=3&scratch=0", 1, 1, 1),
		row("schedules", "double", "GPU-1", "mix?rounds=3&scratch=0", 2, 1, 2),
		row("schedules", "triple", "GPU-1", "mix?rounds=3&scratch=0", 4, 2, 3),
		row("streams", "lanes", "GPU-1", "mix?rounds=9&scratch=0", 4, 2, 4), // like triple, which came first
		row("streams", "lanes", "GPU-1", "mix?rounds=9&scratch=0", 16, 0, 5),
		row("streams", "legacy-default", "GPU-1", "mix?rounds=3&scratch=0", 2, 2, 6),
		row("streams", "lanes", "all", "mix?rounds=3&scratch=0", 2, 2, 7),
		row("operators", "whole", "GPU-1", "crc32c", 2, 2, 8),
		row("streams", "lanes", "GPU-2", "mix?rounds=3&scratch=0", 2, 2, 9),
		row("streams", "lanes", "GPU-1", "crc32c", 2, 2, 10),
	}})
	got := ""
	for _, one := range w {
		got += one.Device + " " + one.Operator + ":"
		for _, r := range one.Rows {
			got += fmt.Sprintf(" %s/%d/%d=%v", r.Schedule.Name, r.Lanes, r.Schedule.Buffers, r.Seconds)
		}
		got += "\n"
	}
	want := "GPU-1 mix: serial/1/1=1 triple/4/2=3 triple/16/2=5\nGPU-2 mix: triple/2/2=9\nGPU-1 crc32c: triple/2/2=10\n"
	if got != want {
		t.Errorf("a plan takes\n%s\nwant\n%s", got, want)
	}
}

// A plan uses the schedule that the worker uses on that kind of device, for that size.
func TestScheduleOfTheWorker(t *testing.T) {
	for _, c := range []struct {
		kind     string
		bytes    int
		name     string
		topology streams.Topology
	}{
		{"host", 16 * mib, "overlapped", streams.StreamPerLane},
		{"", 16 * mib, "overlapped", streams.StreamPerLane},
		{"cuda", streams.Triple.SharedFrom, "triple", streams.StreamPerStage},
		{"cuda", streams.Triple.SharedFrom - 1, "triple", streams.StreamPerLane},
	} {
		if s := scheduleFor(c.kind, c.bytes); s.Name != c.name || s.Topology != c.topology || s.Completion != streams.ByNotify || s.Buffers != 2 {
			t.Errorf("%q with %d bytes: %+v, want %s with topology %d, two buffers and the device's call", c.kind, c.bytes, s, c.name, c.topology)
		}
	}
}

// trace returns the trace that a worker writes for batches of the truth on a device of that ID and kind.
func (tr truth) trace(t *testing.T, id, kind string, lanes int, sizes ...int) string {
	t.Helper()
	timeline := telemetry.NewTimeline(telemetry.TimelineBatches)
	timeline.AddDevice(id, "a device", time.Unix(0, 0))
	at := time.Duration(0)
	for _, size := range sizes {
		out, err := tr.at(size, scheduleFor(kind, size), lanes, 64).run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out.records {
			r.Device, r.Bytes = id, size
			for s := range r.Stages {
				if r.Stages[s] != (streams.Span{}) {
					r.Stages[s].Start += at
					r.Stages[s].End += at
				}
			}
			timeline.AddBatch(&r)
		}
		at += out.back[len(out.back)-1]
	}
	var text bytes.Buffer
	if err := timeline.WriteTrace(&text, 0); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// A trace of one lane contains the stages of one batch at a time. The times with several lanes follow from it, except
// for how much they slow each other down, which such a trace doesn't show.
func TestForecastFromATrace(t *testing.T) {
	tr := fullTruth()
	tr.cost.CopyShare, tr.cost.ComputeShare, tr.cost.Dispatch, tr.host = 1, 1, 0, 0
	w, err := Load(strings.NewReader(tr.trace(t, "host", "host", 1, mib, 16*mib)))
	if err != nil {
		t.Fatal(err)
	}
	o := forecast(t, only(t, w), 4*mib)
	if !strings.Contains(o.Workload.Device, "host") {
		t.Errorf("the device is %q", o.Workload.Device)
	}
	for _, p := range o.Predictions {
		if p.Schedule == streams.Serial.Name {
			continue // a trace doesn't contain the host's waits
		}
		want := tr.measure(t, "", "", p.Bytes, streams.Overlapped, p.Lanes).Batch.Median
		if e := p.Seconds/want - 1; math.Abs(e) > 0.01 {
			t.Errorf("%d bytes, %d lanes: %v seconds predicted, %v run", p.Bytes, p.Lanes, p.Seconds, want)
		}
	}
	if _, some := o.Worst(); some {
		t.Error("a trace has no measured pace to compare with")
	}
}

// In a trace of several lanes, kernels wait for each other. The fitted stages don't include these waits.
func TestTraceOfSeveralLanes(t *testing.T) {
	tr := fullTruth()
	tr.cost.Kernel.BytesPerSecond, tr.cost.CopyShare, tr.cost.ComputeShare, tr.cost.Dispatch = 20e9, 1, 1, 0
	w, err := Load(strings.NewReader(tr.trace(t, "GPU-1", "cuda", 4, 16*mib)))
	if err != nil {
		t.Fatal(err)
	}
	o := forecast(t, only(t, w))
	want := tr.measure(t, "", "", 16*mib, scheduleFor("cuda", 16*mib), 8).Batch.Median
	for _, p := range o.Predictions {
		if p.Lanes == 8 && math.Abs(p.Seconds/want-1) > 0.01 {
			t.Errorf("8 lanes: %v seconds predicted, %v run", p.Seconds, want)
		}
	}
	if !strings.Contains(strings.Join(o.Fitted.Assumptions, " "), "No stage times are of one batch alone") {
		t.Errorf("assumptions %q do not say that several batches were on the device", o.Fitted.Assumptions)
	}
}

// In a trace of a worker under changing load, each batch may have a different size. Only some of the sizes are
// predicted.
func TestTraceOfManySizes(t *testing.T) {
	var sizes []int
	for i := range 30 {
		sizes = append(sizes, mib+i*4096)
	}
	w, err := Load(strings.NewReader(fullTruth().trace(t, "host", "host", 2, sizes...)))
	if err != nil {
		t.Fatal(err)
	}
	o := forecast(t, only(t, w))
	if k := knees(o); len(k) != fewSizes || k[0].Bytes != sizes[0] || k[fewSizes-1].Bytes != sizes[29] {
		t.Errorf("knees %+v, want %d sizes from the smallest to the largest", k, fewSizes)
	}
}
