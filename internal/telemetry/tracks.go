package telemetry

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// A trace viewer draws one track per thread. If two events on a track overlap, it shows one as part of the other. So
// work that really overlaps, such as a lane's next batch filling while the previous one computes, goes to additional
// rows of the track.

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
	id   int // thread ID of the first row; the other rows follow
	bars []bar
}

// maxRows is the number of thread IDs reserved for each track. A lane has two batches, plus a few that may still be
// publishing.
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

// stagesWithin returns the stages of a whole bar without overlap: if two stages overlap, the earlier one keeps the
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
