package bench

import (
	"context"

	"millrace/internal/device"
	"millrace/internal/streams"
)

const groupAlloc = "alloc"

var allocExperiments = []experiment{{
	group: groupAlloc,
	rows: []Entry{
		{Name: "preallocated", Shows: "variable scratch a batch from memory taken once: what no allocator can beat"},
		{Name: "synchronous", Shows: "scratch by an allocation and a free that wait for the device (cudaMalloc, cudaFree)"},
		{Name: "async-0", Shows: "scratch in stream order from a pool with a release threshold of 0"},
		{Name: "async-kept", Shows: "scratch in stream order from a pool that keeps its memory, as the worker runs"},
	},
	run: runAlloc,
}}

// allocFactor is how many bytes of scratch there are to each byte of a batch, and allocLeast what part of the
// largest batch the smallest is. The yardstick's batches have one size and its scratch varies; so it takes the mean
// size of ours and the same range of scratch, which must not be below a batch.
const (
	allocFactor = 2
	allocLeast  = 2
)

func runAlloc(ctx context.Context, t *target) error {
	for _, bytes := range t.sizes() {
		m, err := t.balanced(ctx, bytes)
		if err != nil {
			return err
		}
		m.scratchFactor = allocFactor
		if err := t.runAllocOf(ctx, m, bytes); err != nil {
			return err
		}
	}
	return nil
}

func (t *target) runAllocOf(ctx context.Context, m mix, bytes int) error {
	least := bytes / allocLeast
	sizeOf := func(slot int) int { return least + spreadOut(slot, bytes-least) }
	slots, sum := t.Lanes*t.schedule().Buffers, 0
	for slot := range slots {
		sum += sizeOf(slot)
	}
	mean := sum / slots / wordBytes * wordBytes
	row := func(name, yardName string, double func(device.Device) device.Device) *contender {
		load := newWords(m, bytes)
		load.sizeOf = sizeOf
		c, f := t.flow(groupAlloc, name, load, t.schedule())
		f.double, f.figures = double, allocation
		f.cfg.ScratchLimit = max(f.cfg.ScratchLimit, int64(t.Lanes+1)*int64(roundUp(allocFactor*bytes, scratchAlign))) // room for every stream's piece
		c.rival = t.ask(request("alloc", "mode", yardName, "least", allocFactor*least, "most", allocFactor*bytes,
			"bytes", mean, "slots", t.Lanes, "batches", f.paced, "rounds", m.rounds)).seconds(yardSeconds)
		return c
	}
	preallocated := row("preallocated", "prealloc", func(d device.Device) device.Device { return poolless{below{d}} })
	waiting := row("synchronous", "sync", func(d device.Device) device.Device { return synchronous{below{d}} })
	released := row("async-0", "async0", func(d device.Device) device.Device { return releasing{below{d}} })
	preallocated.base, waiting.base = true, true
	rows := []*contender{preallocated, waiting, released, row("async-kept", "asynckept", nil)}
	if err := t.race(ctx, rows...); err != nil {
		return err
	}
	for _, c := range rows {
		c.compare(figureOverPreallocate, "x", c.seconds, preallocated.seconds)
		took, slow := c.samples(figureAllocation), waiting.samples(figureAllocation)
		for i := range min(len(took), len(slow)) {
			if slow[i] > 0 {
				c.add(figureLessAllocation, "%", 100*(1-took[i]/slow[i]))
			}
		}
	}
	t.finish(rows...)
	return nil
}

// allocation adds the host's time in allocation calls a batch.
func allocation(c *contender, r ran, before, after streams.Stats) {
	spent := after.Scratch.HostTime - before.Scratch.HostTime
	c.add(figureAllocation, "s", spent.Seconds()/float64(r.batches))
}

// spreadOut is a number from 0 to most for each slot, such that those of any few slots lie evenly apart: multiples of
// the golden ratio, less their whole part.
func spreadOut(slot, most int) int {
	share := float64(golden*uint64(slot+1)) / (1 << 64)
	return int(share * float64(most))
}
