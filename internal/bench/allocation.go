package bench

import (
	"context"
	"fmt"

	"millrace/internal/device"
	"millrace/internal/streams"
)

const groupAlloc = "alloc"

var allocSuite = deviceSuite(groupAlloc, Experiment{
	Rows: []Entry{
		{Name: "preallocated", Shows: "variable scratch per batch from memory that is taken once: no allocator can be faster"},
		{Name: "synchronous", Shows: "scratch by an allocation and a free that wait for the device (cudaMalloc, cudaFree)"},
		{Name: "async-0", Shows: "scratch in stream order from a pool with a release threshold of 0"},
		{Name: "async-kept", Shows: "scratch in stream order from a pool that keeps its memory, as the worker runs"},
	},
	each: runAlloc,
})

// allocFactor is the ratio of scratch to batch size, in bytes, and allocLeast is the number of the smallest batches
// that together have the size of the largest one. The baseline program's batches have one size and scratch of varying
// size, at least as large as a batch. So it gets the mean size of our batches and the same range of scratch.
const (
	allocFactor = 2
	allocLeast  = 2
)

func runAlloc(ctx context.Context, t *target) error {
	return t.eachBalanced(ctx, func(m mix, bytes int) error {
		m.scratchFactor = allocFactor
		least := bytes / allocLeast
		sizeOf := func(slot int) int { return least + spreadOut(slot, bytes-least) }
		slots, sum := t.Lanes*t.schedule().Buffers, 0
		for slot := range slots {
			sum += sizeOf(slot)
		}
		mean := sum / slots / wordBytes * wordBytes
		row := func(name, baselineMode string, double func(device.Device) device.Device) *Case {
			load := newWords(m, bytes)
			load.sizeOf = sizeOf
			c, f := t.flow(name, load, t.schedule())
			f.double, f.figures = double, allocation
			f.cfg.ScratchLimit = max(f.cfg.ScratchLimit, int64(t.Lanes+1)*int64(roundUp(allocFactor*bytes, scratchAlign))) // enough for one piece per stream
			c.baseline = t.ask(func() string {
				return fmt.Sprintf("alloc mode=%s least=%d most=%d bytes=%d slots=%d batches=%d rounds=%d",
					baselineMode, allocFactor*least, allocFactor*bytes, mean, t.Lanes, c.times, m.rounds)
			}).seconds(yardSeconds)
			return c
		}
		preallocated := row("preallocated", "prealloc", func(d device.Device) device.Device { return poolless{below{d}} })
		waiting := row("synchronous", "sync", func(d device.Device) device.Device { return synchronous{below{d}} })
		released := row("async-0", "async0", func(d device.Device) device.Device { return releasing{below{d}} })
		preallocated.Reference, waiting.Reference = true, true
		rows := []*Case{preallocated, waiting, released, row("async-kept", "asynckept", nil)}
		if err := t.Measure(ctx, rows...); err != nil {
			return err
		}
		for _, c := range rows {
			c.ratio(figureOverPreallocate, "x", c.seconds, preallocated.seconds)
			c.compareAllocation(waiting)
		}
		t.Report(rows...)
		return nil
	})
}

// allocation adds the host time that a batch spends in allocation calls.
func allocation(c *Case, r ran, before, after streams.Stats) {
	spent := after.Scratch.HostTime - before.Scratch.HostTime
	c.Add(figureAllocation, "s", spent.Seconds()/float64(r.batches))
}

// compareAllocation adds the percentage of allocation time that the case saves compared with another case.
func (c *Case) compareAllocation(other *Case) {
	if of, ok := ratioOf(c.figure(figureAllocation), other.figure(figureAllocation)); ok {
		c.derive(figureLessAllocation, "%", of, func(share float64) float64 { return 100 * (1 - share) })
	}
}

// spreadOut returns a number from 0 to most for each slot: the fractional part of a multiple of the golden ratio,
// scaled to most. The numbers of consecutive slots are evenly spread.
func spreadOut(slot, most int) int {
	share := float64(golden*uint64(slot+1)) / (1 << 64)
	return int(share * float64(most))
}
