package telemetry

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millrace/internal/streams"
)

// An arrow of a trace follows a batch from the lane that filled it over the engines back to the lane. The format
// calls it a flow: a start, steps and an end, which belong together by category, name and id. Each of them names a
// track and a moment, and the viewer ties it to the slice that lies around that moment there.

// flowPoint is where an arrow touches a slice.
type flowPoint struct {
	at     time.Duration // on the device's clock
	thread int
}

// flowPoints collects, for each batch, the slices that its arrow touches.
type flowPoints map[*streams.Record][]flowPoint

// add notes what is drawn of a bar on a track: an engine's stage there, a batch's other stages on its lane. A
// slice of no length has no inside to tie an arrow to.
func (f flowPoints) add(b bar, thread int) {
	parts := []bar{b}
	if b.whole {
		parts = slices.DeleteFunc(b.stagesWithin(), func(part bar) bool { return slices.Contains(engineStages[:], part.stage) })
	}
	for _, part := range parts {
		if part.span.Duration() > 0 {
			f[b.batch] = append(f[b.batch], flowPoint{part.span.Start, thread})
		}
	}
}

// events gives the arrows of a device's batches, which lie in records. offset brings its clock onto the trace's.
func (f flowPoints) events(records []streams.Record, process int, offset time.Duration) (events []traceEvent) {
	for i := range records {
		points := f[&records[i]]
		slices.SortStableFunc(points, func(a, b flowPoint) int { return cmp.Compare(a.at, b.at) })
		if len(points) < 2 {
			continue // an arrow has two ends
		}
		for n, p := range points {
			events = append(events, traceEvent{
				Name: fmt.Sprintf("batch %d", records[i].Batch), Category: "flow", Phase: flowPhase(n, len(points)),
				Process: process, Thread: p.thread, Start: micros(p.at + offset),
				// Batches of several pipelines can have one number, so the place in the trace makes the id.
				ID: uint64(process)<<32 | uint64(i+1), Bind: "e",
			})
		}
	}
	return events
}

// flowPhase is the phase of the nth of so many points of an arrow.
func flowPhase(n, points int) string {
	switch n {
	case 0:
		return "s"
	case points - 1:
		return "f"
	}
	return "t"
}
