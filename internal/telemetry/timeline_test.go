package telemetry_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

// event is a trace event, as a viewer parses it.
type event struct {
	Name string         `json:"name"`
	Cat  string         `json:"cat"`
	Ph   string         `json:"ph"`
	Pid  int            `json:"pid"`
	Tid  int            `json:"tid"`
	Ts   float64        `json:"ts"`
	Dur  float64        `json:"dur"`
	Args map[string]any `json:"args"`
}

// traceOf parses the output of a timeline. It returns the events except the names, and the names of the tracks by
// "pid/tid".
func traceOf(t *testing.T, line *telemetry.Timeline, last time.Duration) (events []event, tracks map[string]string) {
	t.Helper()
	var text strings.Builder
	if err := line.WriteTrace(&text, last); err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []event `json:"traceEvents"`
	}
	if err := json.Unmarshal([]byte(text.String()), &trace); err != nil {
		t.Fatalf("not JSON: %v in\n%.2000s", err, text.String())
	}
	tracks = map[string]string{}
	for _, e := range trace.TraceEvents {
		switch {
		case e.Ph == "X":
			events = append(events, e)
		case e.Name == "process_name":
			tracks[fmt.Sprint(e.Pid)] = e.Args["name"].(string)
		case e.Name == "thread_name":
			tracks[fmt.Sprintf("%d/%d", e.Pid, e.Tid)] = e.Args["name"].(string)
		}
	}
	return events, tracks
}

func onTrack(events []event, tracks map[string]string, name string) (on []event) {
	for _, e := range events {
		if tracks[fmt.Sprintf("%d/%d", e.Pid, e.Tid)] == name {
			on = append(on, e)
		}
	}
	return on
}

func TestTraceHasATrackForEachEngineAndLane(t *testing.T) {
	line := telemetry.NewTimeline(100)
	line.AddDevice("GPU-1", "NVIDIA H100", epoch)
	for _, r := range pipelined("GPU-1", 12, 3) {
		line.BatchDone(r)
	}
	events, tracks := traceOf(t, line, 0)
	if tracks["1"] != "NVIDIA H100 GPU-1" {
		t.Errorf("the device's track is called %q", tracks["1"])
	}
	for _, engine := range []string{"copy_in", "compute", "copy_out"} {
		on := onTrack(events, tracks, engine)
		if len(on) != 12 {
			t.Errorf("%d events on %s, want one for each of 12 batches", len(on), engine)
		}
		for i, e := range on {
			if e.Name != fmt.Sprintf("batch %d", i+1) || e.Cat != engine || e.Args["payloads"] != float64(100+i) || e.Args["messages"] != float64(10) || e.Args["bytes"] != float64(1<<20) {
				t.Errorf("event %d on %s is %+v", i, engine, e)
			}
		}
	}
	if in := onTrack(events, tracks, "copy_in"); in[0].Ts != 500 || in[0].Dur != 1000 {
		t.Errorf("the first copy in is at %v for %v us, want 500 for 1000", in[0].Ts, in[0].Dur)
	}
	for lane := range 3 {
		if len(onTrack(events, tracks, fmt.Sprintf("lane %d", lane))) == 0 {
			t.Errorf("nothing on lane %d", lane)
		}
	}
}

// TestTraceEventsNest: events are in order of time. On each track, every event ends before the next event begins or
// contains the next event, as viewers require.
func TestTraceEventsNest(t *testing.T) {
	records := pipelined("host", 40, 4)
	records[7].Stages[streams.Compute].End += 5 * ms // the kernels of two batches run at the same time
	records[9].Publish.Start -= 400 * us
	events, tracks := traceOf(t, timelineOf(records...), 0)
	if !slices.IsSortedFunc(events, func(a, b event) int {
		if a.Ts < b.Ts {
			return -1
		}
		return int(min(a.Ts-b.Ts, 1))
	}) {
		t.Error("events are not in order of time")
	}
	open := map[int][]float64{} // the end times of the enclosing events, by track
	const slack = 1e-6          // us; less than a nanosecond, the resolution of the times
	for _, e := range events {
		around := open[e.Tid]
		for len(around) > 0 && around[len(around)-1] <= e.Ts+slack {
			around = around[:len(around)-1]
		}
		if len(around) > 0 && e.Ts+e.Dur > around[len(around)-1]+slack {
			t.Errorf("%s on %s from %v to %v exceeds the enclosing event, which ends at %v",
				e.Name, tracks[fmt.Sprintf("1/%d", e.Tid)], e.Ts, e.Ts+e.Dur, around[len(around)-1])
		}
		open[e.Tid] = append(around, e.Ts+e.Dur)
	}
	if len(onTrack(events, tracks, "compute (2)")) == 0 {
		t.Error("kernels that ran at the same time aren't in separate rows")
	}
	if len(onTrack(events, tracks, "lane 0 (2)")) == 0 {
		t.Error("a batch that fills while its lane computes isn't in a separate row")
	}
}

func TestTraceShowsEnginesOverlap(t *testing.T) {
	events, tracks := traceOf(t, timelineOf(pipelined("host", 20, 4)...), 0)
	overlaps := 0
	for _, in := range onTrack(events, tracks, "copy_in") {
		for _, k := range onTrack(events, tracks, "compute") {
			for _, out := range onTrack(events, tracks, "copy_out") {
				from := max(in.Ts, k.Ts, out.Ts)
				to := min(in.Ts+in.Dur, k.Ts+k.Dur, out.Ts+out.Dur)
				if from < to {
					overlaps++
					if in.Name == k.Name || k.Name == out.Name || in.Name == out.Name {
						t.Errorf("%s, %s and %s at once", in.Name, k.Name, out.Name)
					}
				}
			}
		}
	}
	if overlaps == 0 {
		t.Error("copy in, compute and copy out of three batches never overlap")
	}
}

func TestTraceOfTheLastSeconds(t *testing.T) {
	line := timelineOf(pipelined("host", 100, 4)...)
	all, tracks := traceOf(t, line, 0)
	few, fewTracks := traceOf(t, line, 10*ms)
	end := 0.0
	for _, e := range all {
		end = max(end, e.Ts+e.Dur)
	}
	batches := onTrack(few, fewTracks, "compute")
	if len(batches) == 0 || len(batches) >= len(onTrack(all, tracks, "compute")) {
		t.Fatalf("%d batches in the last 10 ms", len(batches))
	}
	for _, e := range few {
		if e.Cat == "batch" && e.Ts+e.Dur < end-10e3 {
			t.Errorf("%s ended %v us before the end", e.Name, end-e.Ts-e.Dur)
		}
	}
}

func TestClocksOfTwoDevicesShareAnAxis(t *testing.T) {
	line := telemetry.NewTimeline(100)
	line.AddDevice("GPU-1", "one", epoch.Add(2*ms))
	line.AddDevice("GPU-2", "two", epoch)
	line.AddDevice("GPU-2", "two again", epoch.Add(time.Hour))
	line.BatchDone(pipelined("GPU-1", 1, 1)[0])
	line.BatchDone(pipelined("GPU-2", 1, 1)[0])
	events, tracks := traceOf(t, line, 0)
	in := onTrack(events, tracks, "copy_in")
	if len(in) != 2 || in[0].Pid == in[1].Pid || in[0].Ts-in[1].Ts != 2000 {
		t.Errorf("copies in at the same time by clocks 2 ms apart are %+v", in)
	}
}

func TestTraceOfAFailedBatch(t *testing.T) {
	r := pipelined("host", 1, 1)[0]
	eachSpan(r, func(s *streams.Span) { *s = streams.Span{} })
	r.Stages[streams.Fill] = streams.Span{Start: ms, End: 2 * ms}
	r.Err = errors.New(`no "room"`)
	events, tracks := traceOf(t, timelineOf(r, &inflight.Record{Record: streams.Record{Device: "host", Batch: 2}}), 0)
	on := onTrack(events, tracks, "lane 0")
	if len(on) != 2 || on[0].Args["error"] != `no "room"` || on[1].Name != "fill" || len(onTrack(events, tracks, "compute")) != 0 {
		t.Errorf("events of a batch that only filled: %+v", events)
	}
}

func TestTimelineKeepsTheLatest(t *testing.T) {
	line := telemetry.NewTimeline(5)
	for _, r := range pipelined("host", 13, 2) {
		line.BatchDone(r)
	}
	events, tracks := traceOf(t, line, 0)
	var names []string
	for _, e := range onTrack(events, tracks, "compute") {
		names = append(names, e.Name)
	}
	if want := []string{"batch 9", "batch 10", "batch 11", "batch 12", "batch 13"}; !slices.Equal(names, want) {
		t.Errorf("remembers %q, want %q", names, want)
	}
}

func TestEmptyTimeline(t *testing.T) {
	events, tracks := traceOf(t, telemetry.NewTimeline(5), time.Second)
	if len(events) != 0 || len(tracks) != 0 {
		t.Errorf("events %v, tracks %v", events, tracks)
	}
}
