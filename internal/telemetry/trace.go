package telemetry

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// traceEvent is an event of the Chrome trace-event format, which Perfetto and chrome://tracing open. Source: "Trace
// Event Format", the Chromium project. Phase M names processes and threads, and X is a complete event (a slice).
type traceEvent struct {
	Name     string `json:"name"`
	Category string `json:"cat,omitempty"`
	Phase    string `json:"ph"`
	Process  int    `json:"pid"`
	Thread   int    `json:"tid"`
	Start    micros `json:"ts"`
	Length   micros `json:"dur"`
	Args     any    `json:"args,omitempty"`
}

// micros is a time that is written in microseconds with three decimals.
type micros time.Duration

// MarshalJSON implements json.Marshaler.
func (m micros) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(m)/1e3, 'f', 3, 64), nil
}

// batchArgs holds the details that a viewer shows for a batch.
type batchArgs struct {
	Payloads int    `json:"payloads"`
	Messages int    `json:"messages,omitempty"` // missing for a pipeline without messages
	Bytes    int    `json:"bytes"`
	Results  int    `json:"result_bytes"`
	Scratch  int    `json:"scratch_bytes"`
	Lane     int    `json:"lane"`
	Closed   string `json:"closed_by"`
	Err      string `json:"error,omitempty"`
}

// WriteTrace writes the timeline as Chrome trace-event JSON. It includes the batches that ended at most last before the
// end of the newest batch, or all batches if last is 0. Each device is a process, and each of its engines and lanes is
// a track. Times count from the earliest epoch of all devices.
func (t *Timeline) WriteTrace(w io.Writer, last time.Duration) error {
	devices, base := t.snapshot()
	keepLast(devices, base, last)
	out := bufio.NewWriter(w) // keeps its first error, which Flush returns
	_, _ = out.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	separator := "\n"
	for i, d := range devices {
		for _, e := range d.events(i+1, d.epoch.Sub(base)) {
			text, err := json.Marshal(e)
			if err != nil {
				return fmt.Errorf("writing the trace: %w", err)
			}
			_, _ = out.WriteString(separator + string(text))
			separator = ",\n"
		}
	}
	_, _ = out.WriteString("\n]}\n")
	return out.Flush()
}

// keepLast drops the batches that ended more than last before the end of the newest batch. If last is 0, it drops none.
// base is the earliest epoch of the devices.
func keepLast(devices []deviceTimeline, base time.Time, last time.Duration) {
	if last <= 0 {
		return
	}
	end := func(d *deviceTimeline, r *inflight.Record) time.Duration { return r.Extent().End + d.epoch.Sub(base) }
	var newest time.Duration
	for i := range devices {
		for j := range devices[i].records {
			newest = max(newest, end(&devices[i], &devices[i].records[j]))
		}
	}
	for i := range devices {
		d := &devices[i]
		d.records = slices.DeleteFunc(d.records, func(r inflight.Record) bool { return end(d, &r) < newest-last })
	}
}

// events returns a device's part of the trace. Names come first, then events in order of time. An event precedes the
// events inside it. The offset converts times of the device's clock to times of the trace.
func (d deviceTimeline) events(process int, offset time.Duration) []traceEvent {
	title := d.name
	if d.id != d.name {
		title = d.name + " " + d.id
	}
	names := []traceEvent{named("process_name", process, 0, title)}
	var events []traceEvent
	for _, t := range append(engineTracks(d.records), laneTracks(d.records)...) {
		rows := t.rows()
		for row := range max(len(rows), 1) { // also show idle engines
			name := t.name
			if row > 0 {
				name = fmt.Sprintf("%s (%d)", t.name, row+1)
			}
			order := traceEvent{Name: "thread_sort_index", Phase: "M", Process: process, Thread: t.id + row,
				Args: map[string]int{"sort_index": t.id + row}}
			names = append(names, named("thread_name", process, t.id+row, name), order)
		}
		for row, bars := range rows {
			for _, b := range bars {
				events = append(events, b.events(process, t.id+row, offset)...)
			}
		}
	}
	slices.SortStableFunc(events, func(a, b traceEvent) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.Length, a.Length))
	})
	return append(names, events...)
}

func named(what string, process, thread int, name string) traceEvent {
	return traceEvent{Name: what, Phase: "M", Process: process, Thread: thread, Args: map[string]string{"name": name}}
}

// events returns the event of the bar and, for a whole batch, the events of its stages. process and thread identify the
// row, and offset is as for deviceTimeline.events.
func (b bar) events(process, thread int, offset time.Duration) []traceEvent {
	r := b.batch
	args := batchArgs{
		Payloads: r.Payloads, Messages: r.Messages, Bytes: r.Bytes, Results: r.ResultBytes, Scratch: r.Scratch, Lane: r.Lane, Closed: r.Closed.String(),
	}
	if r.Err != nil {
		args.Err = r.Err.Error()
	}
	event := traceEvent{
		Name: fmt.Sprintf("batch %d", r.Batch), Category: b.stage.String(), Phase: "X", Process: process, Thread: thread,
		Start: micros(b.span.Start + offset), Length: micros(b.span.Duration()), Args: args,
	}
	if !b.whole {
		return []traceEvent{event}
	}
	event.Category = "batch"
	events := []traceEvent{event}
	for _, part := range b.stagesWithin() {
		inner := part.events(process, thread, offset)[0]
		inner.Name = part.stage.String()
		events = append(events, inner)
	}
	return events
}

// A trace viewer draws one track per thread. If two events on a track overlap, the viewer shows one event as part of the other. Overlapping
// work is therefore drawn in additional rows of the track. An example is a lane's next batch that fills while the previous batch computes.

// bar is one rectangle on a track.
type bar struct {
	span  streams.Span
	batch *inflight.Record
	stage inflight.Stage // valid unless whole is set
	whole bool           // the bar represents the batch, with its stages inside
}

// track is a named group of bars that is drawn in as many rows as necessary.
type track struct {
	name string
	id   int // thread ID of the first row; further rows have the next IDs
	bars []bar
}

// maxRows is the number of thread IDs reserved for each track, which is also the maximum number of its rows. The batches of a
// lane need only a few rows.
const maxRows = 1000

// engineTracks returns the device stages of each engine.
func engineTracks(records []inflight.Record) []track {
	tracks := make([]track, streams.NumEngines)
	for e := range streams.NumEngines {
		tracks[e] = track{name: e.String(), id: 1 + int(e)*maxRows}
		for i := range records {
			stage := engineStages[e]
			if span := records[i].Stages[stage]; span != (streams.Span{}) {
				tracks[e].bars = append(tracks[e].bars, bar{span: span, batch: &records[i], stage: inflight.Stage(stage)})
			}
		}
	}
	return tracks
}

// engineStages maps each engine to the stage that runs on it.
var engineStages = [streams.NumEngines]streams.Stage{
	streams.CopyInEngine: streams.CopyIn, streams.ComputeEngine: streams.Compute, streams.CopyOutEngine: streams.CopyOut,
}

// laneTracks returns the batches of each lane, from the start of filling to the end of settling.
func laneTracks(records []inflight.Record) []track {
	var tracks []track
	byLane := map[int]int{}
	for i := range records {
		whole := records[i].Extent()
		if whole == (streams.Span{}) {
			continue
		}
		lane := records[i].Lane
		at, known := byLane[lane]
		if !known {
			at = len(tracks)
			byLane[lane] = at
			tracks = append(tracks, track{name: fmt.Sprintf("lane %d", lane), id: 1 + (int(streams.NumEngines)+lane)*maxRows})
		}
		tracks[at].bars = append(tracks[at].bars, bar{span: whole, batch: &records[i], whole: true})
	}
	slices.SortFunc(tracks, func(a, b track) int { return a.id - b.id })
	return tracks
}

// rows distributes the bars over as few rows as possible, so that bars in a row don't overlap. Each row is in order of
// time. Bars that don't fit into maxRows rows are omitted.
func (t track) rows() [][]bar {
	bars := slices.Clone(t.bars)
	slices.SortStableFunc(bars, func(a, b bar) int {
		return cmp.Or(cmp.Compare(a.span.Start, b.span.Start), cmp.Compare(a.span.End, b.span.End))
	})
	var rows [][]bar
	for _, b := range bars {
		row := slices.IndexFunc(rows, func(r []bar) bool { return r[len(r)-1].span.End <= b.span.Start })
		switch {
		case row >= 0:
			rows[row] = append(rows[row], b)
		case len(rows) < maxRows:
			rows = append(rows, []bar{b})
		}
	}
	return rows
}

// stagesWithin returns the stages of a whole bar without overlap. If two stages overlap, the earlier one keeps the
// common time.
func (b bar) stagesWithin() []bar {
	var parts []bar
	var from time.Duration
	for s, span := range b.batch.Spans() {
		if span == (streams.Span{}) {
			continue
		}
		span.Start = max(span.Start, from)
		span.End = max(span.End, span.Start)
		from = span.End
		parts = append(parts, bar{span: span, batch: b.batch, stage: inflight.Stage(s)})
	}
	return parts
}
