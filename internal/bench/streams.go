package bench

import (
	"context"
	"fmt"

	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/streams"
)

var streamSuite = deviceSuite("streams", Experiment{
	Rows:  []Entry{{Name: "lanes", Shows: "throughput with 1, 2, 3, 4, 6, 8 and 16 lanes, and the knee: the fewest lanes within 2 % of the best"}},
	cases: laneCases,
}, Experiment{
	Rows: []Entry{
		{Name: "legacy-default", Shows: "all lanes on the legacy default stream, which serializes them"},
		{Name: "per-thread-default", Shows: "a default stream for each thread: the lanes stay independent"},
		{Name: "non-blocking", Shows: "a non-blocking stream for each lane, as the worker has"},
	},
	cases: streamKindCases,
})

// laneCounts are the numbers of lanes that are measured.
var laneCounts = []int{1, 2, 3, 4, 6, 8, 16}

func laneCases(ctx context.Context, s *Session, size int) ([]*Case, error) {
	m, err := balanced(ctx, s, size)
	if err != nil {
		return nil, err
	}
	load := newWords(m, size)
	serial := serialCase(s, load, m)
	serial.hidden = true
	var rows []*Case
	for _, lanes := range laneCounts {
		schedule := workerSchedule(s)
		schedule.Lanes = lanes
		c := batches(s, "lanes", load, schedule)
		c.baseline = slotsBaseline("balanced", c, size, m, lanes)
		compareSerial(c, serial)
		rows = append(rows, c)
	}
	for _, c := range rows {
		c.later(knee, func() (of report.Spread, ok bool) {
			return spread([]float64{float64(c.Row.Lanes)}), kneeOf(rows) == c
		})
	}
	return append(rows, serial), nil
}

// kneeShare is the share of the best throughput that the knee reaches.
const kneeShare = 0.98

// kneeOf returns the case with the fewest lanes that reaches kneeShare of the best throughput. It returns nil if no
// case was measured.
func kneeOf(rows []*Case) *Case {
	best := 0.0
	for _, c := range rows {
		if c.measured() {
			best = max(best, 1/median(c.seconds))
		}
	}
	for _, c := range rows {
		if c.measured() && 1/median(c.seconds) >= kneeShare*best {
			return c
		}
	}
	return nil
}

// streamKindCases returns cases of the same work on the three kinds of stream. A per-thread default stream belongs to
// its thread, so every lane needs a driver with its own thread. The other kinds use such drivers too, for a fair
// comparison.
func streamKindCases(ctx context.Context, s *Session, size int) ([]*Case, error) {
	m, err := balanced(ctx, s, size)
	if err != nil {
		return nil, err
	}
	load := newWords(m, size)
	row := func(name string, variant func(device.Device) device.Device) *Case {
		return batches(s, name, load, streams.Schedule{Name: name, Buffers: 1}, func(w *batchWork) {
			w.drivers, w.locked, w.variant = s.Lanes, true, variant
		})
	}
	own := row("non-blocking", nil)
	own.Reference = true
	rows := []*Case{row("legacy-default", legacyDefault), row("per-thread-default", perThreadDefault), own}
	for _, c := range rows {
		c.ratio(overNonBlocking, own.batch, c.batch)
	}
	return rows, nil
}

var allocSuite = deviceSuite("alloc", Experiment{
	Rows: []Entry{
		{Name: "preallocated", Shows: "variable scratch per batch from memory that is taken once: no allocator can be faster"},
		{Name: "synchronous", Shows: "scratch by an allocation and a free that wait for the device (cudaMalloc, cudaFree)"},
		{Name: "async-0", Shows: "scratch in stream order from a pool with a release threshold of 0"},
		{Name: "async-kept", Shows: "scratch in stream order from a pool that keeps its memory, as the worker runs"},
	},
	cases: allocCases,
})

// allocFactor is the ratio of a batch's scratch to its size. allocMin is the ratio of the largest batch to the
// smallest. In the baseline program, all batches have the same size, and only their scratch varies. The request to
// the program contains the mean size of our batches and the same range of scratch.
const (
	allocFactor = 2
	allocMin    = 2
)

func allocCases(ctx context.Context, s *Session, size int) ([]*Case, error) {
	m, err := balanced(ctx, s, size)
	if err != nil {
		return nil, err
	}
	m.scratchFactor = allocFactor
	load := newWords(m, size)
	load.min = size / allocMin
	slots, sum := s.Lanes*workerSchedule(s).Buffers, 0
	for slot := range slots {
		sum += load.length(slot)
	}
	row := func(name, mode string, variant func(device.Device) device.Device) *Case {
		c := batches(s, name, load, workerSchedule(s), func(w *batchWork) {
			onePerStream := int64(s.Lanes+1) * int64(roundUp(allocFactor*size, scratchAlign))
			w.variant, w.o.ScratchLimit = variant, max(w.o.ScratchLimit, onePerStream)
			w.figures = func(c *Case, r ran) { c.add(allocation, r.allocating.Seconds()/float64(r.batches)) }
		})
		c.baseline = secondsOf(func() string {
			return fmt.Sprintf("alloc mode=%s least=%d most=%d bytes=%d slots=%d batches=%d rounds=%d",
				mode, allocFactor*load.min, allocFactor*size, sum/slots/wordBytes*wordBytes, s.Lanes, c.times, m.rounds)
		})
		return c
	}
	preallocated, waits := row("preallocated", "prealloc", poolless), row("synchronous", "sync", synchronous)
	preallocated.Reference, waits.Reference = true, true
	rows := []*Case{preallocated, waits, row("async-0", "async0", releasing), row("async-kept", "asynckept", nil)}
	for _, c := range rows {
		c.ratio(overPreallocated, c.batch, preallocated.batch)
		c.later(lessAllocation, func() (report.Spread, bool) {
			of, ok := ratioOf(c.figure(allocation.name)(), waits.figure(allocation.name)())
			return inverse(of, func(share float64) float64 { return 100 * (1 - share) }), ok
		})
	}
	return rows, nil
}
