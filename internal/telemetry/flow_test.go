package telemetry_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

// arrow is a point of a flow as a viewer reads it.
type arrow struct {
	event
	ID uint64 `json:"id"`
	Bp string `json:"bp"`
}

// arrowsOf returns the flows of a trace by ID, each in the order in which it is written, and the position of each
// slice.
func arrowsOf(t *testing.T, line *telemetry.Timeline) (flows map[uint64][]arrow, position map[string]int) {
	t.Helper()
	var text strings.Builder
	if err := line.WriteTrace(&text, 0); err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []arrow `json:"traceEvents"`
	}
	if err := json.Unmarshal([]byte(text.String()), &trace); err != nil {
		t.Fatal(err)
	}
	flows, position = map[uint64][]arrow{}, map[string]int{}
	for i, e := range trace.TraceEvents {
		switch e.Ph {
		case "s", "t", "f":
			flows[e.ID] = append(flows[e.ID], e)
			position[fmt.Sprint(e.ID, e.Ts, e.Ph)] = i
		case "X":
			position[fmt.Sprint(e.Pid, e.Tid, e.Ts, e.Dur)] = i
		}
	}
	return flows, position
}

// around returns the innermost slice on the arrow's track that is open at that time. A slice is open from its start
// until just before its end.
func around(events []event, a arrow) (inner event, found bool) {
	for _, e := range events {
		if e.Pid == a.Pid && e.Tid == a.Tid && e.Ts <= a.Ts && a.Ts < e.Ts+e.Dur && (!found || e.Dur <= inner.Dur) {
			inner, found = e, true
		}
	}
	return inner, found
}

// TestFlowsFollowEachBatch: each batch has one arrow from its lane over the engines back to its lane. Each point is
// attached to the slice of its own stage, which is written before the point.
func TestFlowsFollowEachBatch(t *testing.T) {
	line := telemetry.NewTimeline(200)
	for _, device := range []string{"GPU-1", "GPU-2"} {
		line.AddDevice(device, device, epoch)
		for _, r := range pipelined(device, 40, 4) {
			if r.Batch == 8 {
				r.Stages[streams.Compute].End += 100 * us // kernels of two batches at once: a second row
			}
			line.BatchDone(r)
		}
	}
	events, tracks := traceOf(t, line, 0)
	flows, position := arrowsOf(t, line)
	if len(flows) != 80 {
		t.Fatalf("%d flows for 80 batches", len(flows))
	}
	for id, points := range flows {
		var way []string
		for i, p := range points {
			slice, found := around(events, p)
			if !found {
				t.Fatalf("flow %d: %s at %v on track %d is in no slice", id, p.Ph, p.Ts, p.Tid)
			}
			stage := strings.TrimSuffix(slice.Cat, " (2)")
			way = append(way, stage)
			track, _, _ := strings.Cut(tracks[fmt.Sprintf("%d/%d", p.Pid, p.Tid)], " (")
			if lane := fmt.Sprint("lane ", slice.Args["lane"]); track != stage && track != lane {
				t.Errorf("flow %d: %s of a batch on %s is tied on track %s", id, stage, lane, track)
			}
			if p.Name != points[0].Name || p.Cat != "flow" || p.Bp != "e" || p.Pid != points[0].Pid {
				t.Errorf("flow %d: point %d is %+v, the first %+v", id, i, p, points[0])
			}
			if (stage == "copy_in" || stage == "compute" || stage == "copy_out") && slice.Name != p.Name {
				t.Errorf("flow %d of %s is tied to %s of %s", id, p.Name, stage, slice.Name)
			}
			if i > 0 && p.Ts <= points[i-1].Ts {
				t.Errorf("flow %d: %v comes after %v", id, p.Ts, points[i-1].Ts)
			}
			if position[fmt.Sprint(p.ID, p.Ts, p.Ph)] < position[fmt.Sprint(slice.Pid, slice.Tid, slice.Ts, slice.Dur)] {
				t.Errorf("flow %d: point %d is written before its slice", id, i)
			}
		}
		if want := []string{"fill", "copy_in", "compute", "copy_out", "publish", "settle"}; !slices.Equal(way, want) {
			t.Errorf("flow %d goes over %q, want %q", id, way, want)
		}
		if phases := phasesOf(points); phases != "sttttf" {
			t.Errorf("flow %d has the phases %s", id, phases)
		}
	}
}

func phasesOf(points []arrow) (phases string) {
	for _, p := range points {
		phases += p.Ph
	}
	return phases
}

// TestFlowsOfUnfinishedBatches: an arrow goes as far as its batch did and skips stages of length zero.
func TestFlowsOfUnfinishedBatches(t *testing.T) {
	records := pipelined("host", 3, 1)
	records[0].Publish, records[0].Settle = streams.Span{}, streams.Span{}
	records[1].Stages[streams.Compute].End = records[1].Stages[streams.Compute].Start
	only := records[2].Stages[streams.Fill]
	eachSpan(records[2], func(s *streams.Span) { *s = streams.Span{} })
	records[2].Stages[streams.Fill] = only
	flows, _ := arrowsOf(t, timelineOf(records...))
	got := map[string]string{}
	for _, points := range flows {
		got[points[0].Name] = phasesOf(points)
	}
	if want := (map[string]string{"batch 1": "sttf", "batch 2": "stttf"}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the flows are %v, want %v", got, want)
	}
}

// TestFlowsOfPipelinesInTurn: a bench runs several pipelines one after another on a device, and each numbers its
// batches from 1.
func TestFlowsOfPipelinesInTurn(t *testing.T) {
	records := pipelined("host", 5, 2)
	for _, r := range pipelined("host", 5, 2) {
		later(r, 100*ms)
		records = append(records, r)
	}
	flows, _ := arrowsOf(t, timelineOf(records...))
	if len(flows) != 10 {
		t.Errorf("%d flows for 10 batches", len(flows))
	}
	for id, points := range flows {
		if phases := phasesOf(points); phases != "sttttf" {
			t.Errorf("flow %d has the phases %s", id, phases)
		}
	}
}
