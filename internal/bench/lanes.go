package bench

import (
	"context"

	"millrace/internal/device"
	"millrace/internal/streams"
)

const groupStreams = "streams"

var streamExperiments = []experiment{{
	group: groupStreams,
	rows:  []Entry{{Name: "lanes", Shows: "throughput against 1, 2, 3, 4, 6, 8 and 16 lanes, with the knee: the least within 2 % of the best"}},
	run:   runLanes,
}, {
	group: groupStreams,
	rows: []Entry{
		{Name: "legacy-default", Shows: "all lanes on the legacy default stream, which joins everything"},
		{Name: "per-thread-default", Shows: "a default stream for each thread: they do not join"},
		{Name: "non-blocking", Shows: "non-blocking streams of their own, as the worker has"},
	},
	run: runStreamKinds,
}}

// laneCounts are the numbers of lanes that are tried.
var laneCounts = []int{1, 2, 3, 4, 6, 8, 16}

// kneeShare is how near the best throughput the knee is.
const kneeShare = 0.98

func runLanes(ctx context.Context, t *target) error {
	for _, bytes := range t.sizes() {
		m, err := t.balanced(ctx, bytes)
		if err != nil {
			return err
		}
		load := newWords(m, bytes)
		serial, _ := t.flow(groupSchedules, "serial", load, streams.Serial)
		serial.base = true
		var rows []*contender
		for _, lanes := range laneCounts {
			c, f := t.flow(groupStreams, "lanes", load, t.schedule())
			f.setLanes(c, lanes)
			c.rival = t.ask(request("balanced", "bytes", bytes, "rounds", m.rounds, "slots", lanes, "batches", f.paced)).
				seconds(yardSeconds)
			rows = append(rows, c)
		}
		if err := t.race(ctx, append(rows, serial)...); err != nil {
			return err
		}
		for _, c := range rows {
			c.compare(figureSpeedup, "x", serial.seconds, c.seconds)
		}
		if k := knee(rows); k != nil {
			k.add(figureKnee, "", float64(k.row.Lanes))
		}
		t.finish(rows...)
	}
	return nil
}

// knee is the contender with the least lanes that comes near the best; nil if none was measured.
func knee(rows []*contender) *contender {
	best := 0.0
	for _, c := range rows {
		if c.measured() && len(c.seconds) > 0 {
			best = max(best, 1/median(c.seconds))
		}
	}
	for _, c := range rows {
		if c.measured() && len(c.seconds) > 0 && 1/median(c.seconds) >= kneeShare*best {
			return c
		}
	}
	return nil
}

// runStreamKinds puts the same work on the three kinds of stream. A per-thread default stream is its thread's, so
// there every lane has a driver with a thread to itself; the others have them too, to differ in nothing else.
func runStreamKinds(ctx context.Context, t *target) error {
	for _, bytes := range t.sizes() {
		m, err := t.balanced(ctx, bytes)
		if err != nil {
			return err
		}
		load := newWords(m, bytes)
		row := func(name string, double func(device.Device) device.Device) *contender {
			c, f := t.flow(groupStreams, name, load, streams.Schedule{Name: name, Buffers: 1})
			f.drivers, f.locked, f.double = t.Lanes, true, double
			return c
		}
		legacy := row("legacy-default", func(d device.Device) device.Device { return &onDefaultStreams{below: below{d}} })
		perThread := row("per-thread-default", func(d device.Device) device.Device {
			return &onDefaultStreams{below: below{d}, perThread: true}
		})
		own := row("non-blocking", nil)
		own.base = true
		rows := []*contender{legacy, perThread, own}
		if err := t.race(ctx, rows...); err != nil {
			return err
		}
		for _, c := range rows {
			c.compare(figureOverOwn, "x", own.seconds, c.seconds)
		}
		t.finish(rows...)
	}
	return nil
}
