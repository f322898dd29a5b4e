package telemetry_test

import (
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// pipelined returns the records of n batches on the lanes of a device whose engines serve one batch at a time. Copy in
// takes 1 ms, compute 1.2 ms, and copy out 0.8 ms. A lane fills its next batch as soon as it has submitted one. It
// submits that batch once the previous batch has left the device.
func pipelined(device string, n, lanes int) []*inflight.Record {
	times := [streams.NumEngines]time.Duration{1 * ms, 1200 * us, 800 * us}
	var engineFree [streams.NumEngines]time.Duration
	laneFree := make([]time.Duration, lanes)
	submitted := make([]time.Duration, lanes)
	records := make([]*inflight.Record, n)
	for i := range records {
		lane := i % lanes
		r := &inflight.Record{Record: streams.Record{
			Device: device, Batch: uint64(i + 1), Lane: lane, Payloads: 100 + i, Bytes: 1 << 20, ResultBytes: 3200, Scratch: 4096,
			Closed: streams.CloseReason(i) % streams.NumCloseReasons,
		}, Messages: 10, Ended: 9}
		at := max(laneFree[lane], submitted[lane]+500*us)
		r.Stages[streams.Fill] = streams.Span{Start: submitted[lane], End: at}
		submitted[lane] = at
		for e, length := range times {
			start := max(at, engineFree[e])
			at = start + length
			engineFree[e] = at
			r.Stages[streams.CopyIn+streams.Stage(e)] = streams.Span{Start: start, End: at}
		}
		laneFree[lane] = at
		r.Publish = streams.Span{Start: at, End: at + 300*us}
		r.Settle = streams.Span{Start: at + 300*us, End: at + 350*us}
		records[i] = r
	}
	return records
}

// eachSpan calls change for every stage of a batch.
func eachSpan(r *inflight.Record, change func(*streams.Span)) {
	for s := range r.Stages {
		change(&r.Stages[s])
	}
	change(&r.Publish)
	change(&r.Settle)
}

func later(r *inflight.Record, by time.Duration) {
	eachSpan(r, func(s *streams.Span) { s.Start, s.End = s.Start+by, s.End+by })
}

// epoch is the time at which the clocks of the test devices read zero.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// timelineOf returns a timeline that contains the records.
func timelineOf(records ...*inflight.Record) *telemetry.Timeline {
	t := telemetry.NewTimeline(telemetry.TimelineBatches)
	for _, r := range records {
		t.BatchDone(r)
	}
	return t
}

// someStats returns a pipeline's counters, each with a different value.
func someStats(device string) streams.Stats {
	return streams.Stats{
		Device: device, Lanes: streams.LaneCounts{Free: 1, Filling: 2, InFlight: 3}, Pinned: 64 << 20, Pageable: 4096,
		Scratch: streams.ScratchStats{Used: 10, Reserved: 20, HighWater: 15, Limit: 1 << 30, Allocations: 7, Failures: 2},
		Engines: [streams.NumEngines]time.Duration{2 * time.Second, 3 * time.Second, time.Second},
		Busy:    4 * time.Second, Overlap: 1500 * ms, Counted: 55 * time.Second, Uptime: time.Minute, InHand: 3,
	}
}
