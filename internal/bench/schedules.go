package bench

import (
	"context"

	"millrace/internal/streams"
)

const groupSchedules = "schedules"

var scheduleExperiments = []experiment{{
	group: groupSchedules,
	rows: []Entry{
		{Name: "serial", Shows: "no overlap: one buffer, and the host waits for each stage before the next"},
		{Name: "double", Shows: "copy of one batch while the one before computes: two buffers, a stream an engine, events"},
		{Name: "triple", Shows: "copy in, kernel and copy out of three batches at once, as the worker runs"},
		{Name: "events", Shows: "a stream an engine, ordered by events: the host never waits within a batch"},
		{Name: "host-sync", Shows: "the same streams, and the host synchronizes after each stage instead"},
		{Name: "event-timing", Shows: "stage times by device events against the host's clock around a synchronized stage"},
	},
	run: runSchedules,
}, {
	group: groupSchedules,
	rows:  []Entry{{Name: "chunked", Shows: "one large payload whole, and cut in 4, 16 and 64 pieces on as many lanes: same results"}},
	run:   runChunked,
}, {
	group: groupSchedules,
	rows: []Entry{
		{Name: "plain", Shows: "minhash, every warp loading and computing: what the next two compare with"},
		{Name: "warp-specialized", Shows: "minhash with producer warps that load while consumer warps compute, on several streams"},
		{Name: "cluster", Shows: "minhash on thread-block clusters that share work through distributed shared memory"},
	},
	run: runVariants,
}}

func runSchedules(ctx context.Context, t *target) error {
	for _, bytes := range t.sizes() {
		m, err := t.balanced(ctx, bytes)
		if err != nil {
			return err
		}
		if err := t.runSchedulesOf(ctx, m, bytes); err != nil {
			return err
		}
	}
	return nil
}

func (t *target) runSchedulesOf(ctx context.Context, m mix, bytes int) error {
	load := newWords(m, bytes)
	serial, serialFlow := t.flow(groupSchedules, "serial", load, streams.Serial)
	serial.base = true
	serial.rival = t.ask(request("serial", "bytes", bytes, "rounds", m.rounds, "batches", serialFlow.paced)).seconds(yardSeconds)

	double, doubleFlow := t.flow(groupSchedules, "double", load, streams.DoubleBuffered)
	double.rival = t.ask(request("balanced-three", "bytes", bytes, "rounds", m.rounds, "slots", streams.DoubleBuffered.Lanes,
		"batches", doubleFlow.paced)).seconds(yardSeconds)

	triple, tripleFlow := t.flow(groupSchedules, "triple", load, t.schedule())
	triple.rival = t.ask(request("balanced", "bytes", bytes, "rounds", m.rounds, "slots", t.Lanes,
		"batches", tripleFlow.paced)).seconds(yardSeconds)

	events, eventsFlow := t.flow(groupSchedules, "events", load, threeStreams(t.Lanes, false))
	eventsFlow.figures, eventsFlow.drivers = waiting, 1
	waits, waitsFlow := t.flow(groupSchedules, "host-sync", load, threeStreams(t.Lanes, true))
	waitsFlow.figures, waitsFlow.drivers = waiting, 1

	timing := t.eventTiming(load)
	both := t.copies(pinnedBoth, bytes)
	both.base = true

	rows := []*contender{serial, double, triple, events, waits, timing}
	if err := t.race(ctx, append(rows, both)...); err != nil {
		return err
	}
	for _, c := range []*contender{serial, double, triple, events, waits} {
		c.compare(figureSpeedup, "x", serial.seconds, c.seconds)
		c.compareCeiling(longest(both.seconds, median(serial.stages[streams.ComputeEngine])))
	}
	t.finish(rows...)
	return nil
}

// threeStreams is a schedule with a stream for each engine.
func threeStreams(lanes int, hostWaits bool) streams.Schedule {
	return streams.Schedule{Name: "three streams", Lanes: lanes, Buffers: 1, Topology: streams.StreamPerStage, HostWaits: hostWaits,
		Completion: streams.ByAdaptivePolling}
}

// paced is how many batches a round has. It is known once the flow has measured one.
func (f *flow) paced() int { return f.batches }

// longest is, for each round, the longest stage of a batch when all engines run: a copy while the other direction
// is busy too, or the kernel alone.
func longest(copying []float64, kernel float64) []float64 {
	stages := make([]float64, len(copying))
	for i, s := range copying {
		stages[i] = max(s, kernel)
	}
	return stages
}

// compareCeiling adds how near the contender comes to what no schedule can beat: a batch in the time of its longest
// stage.
func (c *contender) compareCeiling(longest []float64) {
	c.compare(figureShare, "", longest, c.seconds)
	c.compare(figureOverLongest, "x", c.seconds, longest)
}

// waiting adds the share of the time in which the submitting goroutine had to wait: for a batch to come back, or
// for the device within Submit. The second kind keeps it from everything else.
func waiting(c *contender, r ran, before, after streams.Stats) {
	within := after.HostWaited - before.HostWaited
	c.add(figureBlocked, "", (r.blocked+within).Seconds()/r.elapsed.Seconds())
	c.add(figureInSubmit, "", within.Seconds()/r.elapsed.Seconds())
}
