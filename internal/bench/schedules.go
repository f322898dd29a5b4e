package bench

import (
	"context"
	"fmt"

	"millrace/internal/streams"
)

var scheduleSuite = deviceSuite("schedules", Experiment{
	Rows: []Entry{
		{Name: "serial", Shows: "no overlap: one buffer, and the host waits for each stage before the next"},
		{Name: "double", Shows: "one batch is copied while the previous one computes: two buffers, a stream for each engine, events"},
		{Name: "triple", Shows: "copy in, kernel and copy out of three batches at once, as the worker runs"},
		{Name: "events", Shows: "a stream for each engine, ordered by events: the host never waits within a batch"},
		{Name: "host-sync", Shows: "the same streams, but the host synchronizes after each stage"},
		{Name: "event-timing", Shows: "stage times by device events against the host's clock around a synchronized stage"},
	},
	each: runSchedules,
}, Experiment{
	Rows: []Entry{{Name: "chunked", Shows: "one large payload whole, and cut into 4, 16 and 64 pieces on as many lanes: same results"}},
	each: runChunked,
}, Experiment{
	Rows: []Entry{
		{Name: "plain", Shows: "minhash, where every warp loads and computes: the reference of the next two rows"},
		{Name: "warp-specialized", Shows: "minhash with producer warps that load while consumer warps compute, on several streams"},
		{Name: "cluster", Shows: "minhash on thread-block clusters that share work through distributed shared memory"},
	},
	each: runVariants,
})

func runSchedules(ctx context.Context, t *target) error {
	return t.eachBalanced(ctx, func(m mix, bytes int) error {
		load := newWords(m, bytes)
		serial := t.serial(load)

		double, _ := t.flow("double", load, streams.DoubleBuffered)
		double.baseline = t.balancedBaseline("balanced-three", double, load, streams.DoubleBuffered.Lanes)
		triple, _ := t.flow("triple", load, t.schedule())
		triple.baseline = t.balancedBaseline("balanced", triple, load, t.Lanes)

		events, eventsFlow := t.flow("events", load, threeStreams(t.Lanes, false))
		waits, waitsFlow := t.flow("host-sync", load, threeStreams(t.Lanes, true))
		eventsFlow.figures, waitsFlow.figures = waiting, waiting

		timing := t.eventTiming(load)
		both := t.copies(pinnedBoth, bytes)
		both.Reference = true

		rows := []*Case{serial, double, triple, events, waits, timing}
		if err := t.Measure(ctx, append(rows, both)...); err != nil {
			return err
		}
		longest := longestStage(both.seconds, serial.stages[streams.ComputeEngine])
		for _, c := range rows {
			c.compareSerial(serial)
			c.compareCeiling(longest)
		}
		t.Report(rows...)
		return nil
	})
}

// serial returns the case of the serial schedule, with the baseline program's serial schedule as its baseline.
func (t *target) serial(load *words) *Case {
	c, _ := t.flow("serial", load, streams.Serial)
	c.Reference = true
	c.baseline = t.ask(func() string {
		return fmt.Sprintf("serial bytes=%d rounds=%d batches=%d", load.size, load.rounds, c.times)
	}).seconds(yardSeconds)
	return c
}

// balancedBaseline returns the baseline of c: a schedule of the baseline program with the given number of slots.
func (t *target) balancedBaseline(schedule string, c *Case, load *words, slots int) *Case {
	return t.ask(func() string {
		return fmt.Sprintf("%s bytes=%d rounds=%d slots=%d batches=%d", schedule, load.size, load.rounds, slots, c.times)
	}).seconds(yardSeconds)
}

// compareSerial adds two speedups: over the baseline program's serial schedule in plain CUDA, and over our own serial
// schedule, which is the slower of the two.
func (c *Case) compareSerial(serial *Case) {
	if serial.baseline != nil {
		c.ratio(figureOverCUDASerial, "x", serial.baseline.seconds, c.seconds)
	}
	c.ratio(figureSpeedup, "x", serial.seconds, c.seconds)
}

// threeStreams returns a schedule with a stream for each engine.
func threeStreams(lanes int, hostWaits bool) streams.Schedule {
	return streams.Schedule{Name: "three streams", Lanes: lanes, Buffers: 1, Topology: streams.StreamPerStage, HostWaits: hostWaits,
		Completion: streams.ByAdaptivePolling}
}

// longestStage returns, for each round, the longest stage of a batch when all engines run: a copy while the other
// direction is busy too, or the kernel alone.
func longestStage(copying, kernels []float64) []float64 {
	if len(kernels) == 0 {
		return nil
	}
	kernel := median(kernels)
	stages := make([]float64, len(copying))
	for i, s := range copying {
		stages[i] = max(s, kernel)
	}
	return stages
}

// compareCeiling adds the case's share of the maximum throughput of any schedule: one batch in the time of its longest
// stage.
func (c *Case) compareCeiling(longest []float64) {
	c.ratio(figureShare, "", longest, c.seconds)
	c.ratio(figureOverLongest, "x", c.seconds, longest)
}

// waiting adds the share of the time in which the submitting goroutine was blocked: waiting for a completed batch, or
// for the device within Submit.
func waiting(c *Case, r ran, before, after streams.Stats) {
	within := after.HostWaited - before.HostWaited
	c.Add(figureBlocked, "", (r.blocked+within).Seconds()/r.elapsed.Seconds())
	c.Add(figureInSubmit, "", within.Seconds()/r.elapsed.Seconds())
}
