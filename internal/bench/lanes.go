package bench

import (
	"context"

	"millrace/internal/device"
	"millrace/internal/streams"
)

var streamSuite = deviceSuite("streams", Experiment{
	Rows: []Entry{{Name: "lanes", Shows: "throughput with 1, 2, 3, 4, 6, 8 and 16 lanes, and the knee: the fewest lanes within 2 % of the best"}},
	each: runLanes,
}, Experiment{
	Rows: []Entry{
		{Name: "legacy-default", Shows: "all lanes on the legacy default stream, which serializes them"},
		{Name: "per-thread-default", Shows: "a default stream for each thread: the lanes stay independent"},
		{Name: "non-blocking", Shows: "a non-blocking stream for each lane, as the worker has"},
	},
	each: runStreamKinds,
})

// laneCounts are the numbers of lanes that are measured.
var laneCounts = []int{1, 2, 3, 4, 6, 8, 16}

// kneeShare is the share of the best throughput that the knee reaches.
const kneeShare = 0.98

func runLanes(ctx context.Context, t *target) error {
	return t.eachBalanced(ctx, func(m mix, bytes int) error {
		load := newWords(m, bytes)
		serial := t.serial(load)
		var rows []*Case
		for _, lanes := range laneCounts {
			c, f := t.flow("lanes", load, t.schedule())
			f.setLanes(c, lanes)
			c.baseline = t.balancedBaseline("balanced", c, load, lanes)
			rows = append(rows, c)
		}
		if err := t.Measure(ctx, append(rows, serial)...); err != nil {
			return err
		}
		for _, c := range rows {
			c.compareSerial(serial)
		}
		if k := knee(rows); k != nil {
			k.Add(figureKnee, "", float64(k.Row.Lanes))
		}
		t.Report(rows...)
		return nil
	})
}

// knee returns the case with the fewest lanes that reaches kneeShare of the best throughput, or nil if none was
// measured.
func knee(rows []*Case) *Case {
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

// runStreamKinds runs the same work on the three kinds of stream. A per-thread default stream belongs to its thread, so
// every lane needs a driver with its own thread. The other kinds have such drivers too, so that nothing else differs.
func runStreamKinds(ctx context.Context, t *target) error {
	return t.eachBalanced(ctx, func(m mix, bytes int) error {
		load := newWords(m, bytes)
		row := func(name string, double func(device.Device) device.Device) *Case {
			c, f := t.flow(name, load, streams.Schedule{Name: name, Buffers: 1})
			f.drivers, f.locked, f.double = t.Lanes, true, double
			return c
		}
		legacy := row("legacy-default", func(d device.Device) device.Device { return &onDefaultStreams{below: below{d}} })
		perThread := row("per-thread-default", func(d device.Device) device.Device {
			return &onDefaultStreams{below: below{d}, perThread: true}
		})
		own := row("non-blocking", nil)
		own.Reference = true
		rows := []*Case{legacy, perThread, own}
		if err := t.Measure(ctx, rows...); err != nil {
			return err
		}
		for _, c := range rows {
			c.ratio(figureOverOwn, "x", own.seconds, c.seconds)
		}
		t.Report(rows...)
		return nil
	})
}
