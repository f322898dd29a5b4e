package telemetry

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// An arrow in a trace follows a batch from the lane that filled it over the engines back to the lane. The trace format
// calls it a flow: a start, steps and an end, which have the same category, name and ID. Each of them specifies a track
// and a time, and the viewer attaches it to the slice at that time.

// flowPoint is a point at which an arrow touches a slice.
type flowPoint struct {
	at     time.Duration // on the device's clock
	thread int
}

// flowPoints collects, for each batch, the points of its arrow.
type flowPoints map[*inflight.Record][]flowPoint

// add adds the points of a bar on a track: the stage of an engine track, or the other stages of a batch on its lane's
// track. It skips slices without length, because an arrow can't be attached to them.
func (f flowPoints) add(b bar, thread int) {
	parts := []bar{b}
	if b.whole {
		parts = slices.DeleteFunc(b.stagesWithin(), func(part bar) bool { return slices.Contains(engineStages[:], streams.Stage(part.stage)) })
	}
	for _, part := range parts {
		if part.span.Duration() > 0 {
			f[b.batch] = append(f[b.batch], flowPoint{part.span.Start, thread})
		}
	}
}

// events returns the arrows of a device's batches, which are in records. The offset converts times of the device's
// clock to times of the trace.
func (f flowPoints) events(records []inflight.Record, process int, offset time.Duration) (events []traceEvent) {
	for i := range records {
		points := f[&records[i]]
		slices.SortStableFunc(points, func(a, b flowPoint) int { return cmp.Compare(a.at, b.at) })
		if len(points) < 2 {
			continue // an arrow needs two ends
		}
		for n, p := range points {
			events = append(events, traceEvent{
				Name: fmt.Sprintf("batch %d", records[i].Batch), Category: "flow", Phase: flowPhase(n, len(points)),
				Process: process, Thread: p.thread, Start: micros(p.at + offset),
				// Batches of different pipelines can have the same number, so the ID is the position in the trace.
				ID: uint64(process)<<32 | uint64(i+1), Bind: "e",
			})
		}
	}
	return events
}

// flowPhase returns the phase of point n of an arrow.
func flowPhase(n, points int) string {
	switch n {
	case 0:
		return "s"
	case points - 1:
		return "f"
	}
	return "t"
}
