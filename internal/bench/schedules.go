package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/operator"
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
	cases: scheduleCases,
}, Experiment{
	Rows:  []Entry{{Name: "chunked", Shows: "one large payload whole, and cut into 4, 16 and 64 pieces on as many lanes: same results"}},
	sizes: func(s *Session) []int { return lastOf(s.batchSizes()) },
	cases: chunkedCases,
}, Experiment{
	Rows: []Entry{
		{Name: "plain", Shows: "minhash, where every warp loads and computes: the reference of the next two rows"},
		{Name: "warp-specialized", Shows: "minhash with producer warps that load while consumer warps compute, on several streams"},
		{Name: "cluster", Shows: "minhash on thread-block clusters that share work through distributed shared memory"},
	},
	cases: kernelCases,
})

func scheduleCases(ctx context.Context, s *Session, size int) ([]*Case, error) {
	m, err := balanced(ctx, s, size)
	if err != nil {
		return nil, err
	}
	load := newWords(m, size)
	serial := serialCase(s, load, m)
	double := batches(s, "double", load, streams.DoubleBuffered)
	double.baseline = slotsBaseline("balanced-three", double, size, m, streams.DoubleBuffered.Lanes)
	triple := batches(s, "triple", load, workerSchedule(s))
	triple.baseline = slotsBaseline("balanced", triple, size, m, s.Lanes)
	events := batches(s, "events", load, threeStreams(s.Lanes, false), waiting)
	waits := batches(s, "host-sync", load, threeStreams(s.Lanes, true), waiting)
	both := copies(s, pinnedBoth, size)
	both.hidden = true

	rows := append([]*Case{serial, double, triple, events, waits}, timingCases(s, load)...)
	stage := longerStage(both.batch, serial.stage(streams.ComputeEngine))
	for _, c := range rows {
		compareSerial(c, serial)
		compareCeiling(c, stage)
	}
	return append(rows, both), nil
}

// serialCase returns a case of the serial schedule. Its baseline is the serial schedule of the baseline program.
func serialCase(s *Session, load *load, m mix) *Case {
	c := batches(s, "serial", load, streams.Serial)
	c.Reference = true
	c.baseline = secondsOf(func() string {
		return fmt.Sprintf("serial bytes=%d rounds=%d batches=%d", load.size, m.rounds, c.times)
	})
	return c
}

// slotsBaseline returns the baseline of c. It is a schedule of the baseline program with the given number of slots.
func slotsBaseline(schedule string, c *Case, size int, m mix, slots int) *baseline {
	return secondsOf(func() string {
		return fmt.Sprintf("%s bytes=%d rounds=%d slots=%d batches=%d", schedule, size, m.rounds, slots, c.times)
	})
}

// compareSerial adds two speedups to c. One is over the baseline program's serial schedule in plain CUDA. The other is
// over our own serial schedule, which is slower.
func compareSerial(c, serial *Case) {
	c.ratio(overCUDASerial, serial.baseline.values, c.batch)
	c.ratio(overSerial, serial.batch, c.batch)
}

// compareCeiling adds the case's share of the maximum throughput of any schedule, and the inverse of this share. The
// maximum is one batch per longest stage while all engines run. longest returns the time of the longest stage, which is
// the kernel alone, or a copy while the other direction is busy.
func compareCeiling(c *Case, longest perRound) {
	c.ratio(ofCeiling, longest, c.batch)
	c.ratio(overLongest, c.batch, longest)
}

// threeStreams returns a schedule with a stream for each engine. If hostWaits is set, the host waits for each stage.
func threeStreams(lanes int, hostWaits bool) streams.Schedule {
	return streams.Schedule{Name: "three streams", Lanes: lanes, Buffers: 1, Topology: streams.StreamPerStage, HostWaits: hostWaits,
		Completion: streams.ByAdaptivePolling}
}

// waiting adds two figures to a row. One is the share of time in which the submitting goroutine waits. The other is the
// part of that share within Submit.
func waiting(w *batchWork) {
	w.figures = func(c *Case, r ran) {
		c.add(blocked, (r.blocked+r.waited).Seconds()/r.elapsed.Seconds())
		c.add(inSubmit, r.waited.Seconds()/r.elapsed.Seconds())
	}
}

// timingTolerance is the permitted relative difference between stage times from events and from the clock.
const timingTolerance = 0.05

// stageTimes holds the total seconds of a batch's three stages, by the host's clock and by device events. Each has one
// value per round.
type stageTimes struct{ byClock, byEvents []float64 }

// timingCases returns a case that compares the stage times of serial batches by device events and by the host's clock.
// If the host waits for each stage, its clock shows the stage's time plus the cost of waiting. A second, hidden case
// measures that cost with almost empty batches.
func timingCases(s *Session, full *load) []*Case {
	row := func(name string, l *load, times *stageTimes) *Case {
		return batches(s, name, l, streams.Serial, func(w *batchWork) {
			w.quiet = true
			w.figures = func(_ *Case, r ran) {
				times.byClock = append(times.byClock, r.waited.Seconds()/float64(r.batches))
				times.byEvents = append(times.byEvents, r.staged)
			}
		})
	}
	var stages, overhead stageTimes
	timing := row("event-timing", full, &stages)
	empty := row("event-timing over empty batches", newWords(mix{}, scratchAlign), &overhead)
	empty.hidden = true
	timing.later(byClock, func() (report.Spread, bool) {
		of, ok := stages.clockOverEvents(overhead)
		// Only the largest batches cause this note. In smaller batches, the cost of waiting is too large compared with the stages.
		if off := math.Abs(of.Median - 1); ok && off > timingTolerance && full.size == slices.Max(s.batchSizes()) {
			s.Note("event-timing: events and clock differ by %s on %s. Don't rely on stage times.", share(off), s.info.ID)
		}
		return of, ok
	})
	return []*Case{timing, empty}
}

// clockOverEvents returns the ratio of the clock's stage times to the events' stage times. It first subtracts the cost
// of waiting: the difference between clock and events for almost empty batches. ok is false if there is no such ratio.
func (s stageTimes) clockOverEvents(empty stageTimes) (of report.Spread, ok bool) {
	if len(s.byClock) != len(empty.byClock) {
		return of, false
	}
	stages := make([]float64, len(s.byClock))
	for i := range stages {
		stages[i] = s.byClock[i] - (empty.byClock[i] - empty.byEvents[i])
	}
	return ratioOf(stages, s.byEvents)
}

// chunkedPieces are the numbers of pieces that the payload is cut into.
var chunkedPieces = []int{1, 4, 16, 64}

// chunkedFactor is the ratio of the payload to the largest batch. With the default sizes, the payload has 64 MiB on a
// GPU.
const chunkedFactor = 4

func chunkedCases(ctx context.Context, s *Session, size int) ([]*Case, error) {
	m, err := balanced(ctx, s, size)
	if err != nil {
		return nil, err
	}
	limit := chunkedPieces[len(chunkedPieces)-1]
	payload := roundUp(min(chunkedFactor*size, MaxBatchBytes), limit*scratchAlign)
	whole, same := newWords(m, payload), &sameResults{}
	var cases []*Case
	for _, n := range chunkedPieces {
		c := chunked(s, m, whole, n, same)
		cases = append(cases, c)
		c.ratio(overWhole, cases[0].batch, c.batch)
	}
	cases[0].Reference = true
	return cases, nil
}

// chunked returns a case that processes a payload in n pieces, each on its own lane. The row shows the payload as one
// batch.
func chunked(s *Session, m mix, whole *load, n int, same *sameResults) *Case {
	load := newWords(m, whole.size/n)
	load.whole = whole
	schedule := workerSchedule(s)
	schedule.Lanes, schedule.Buffers = n, 1
	c := batches(s, "chunked", load, schedule, func(w *batchWork) {
		w.passes = true
		w.figures = func(c *Case, _ ran) { c.add(pieces, float64(n)) }
		w.check = func(held []*streams.Batch, seed uint64) error {
			return same.check(fmt.Sprintf("the payload in %d pieces", n), seed, held)
		}
	})
	c.Row.BatchBytes = whole.size
	return c
}

// kernelVariant is an operator that uses a different kernel of the device's library. Parameters and results are the same.
type kernelVariant struct {
	operator.Operator
	kernel string
}

// Name implements operator.Operator.
func (k kernelVariant) Name() string { return k.kernel }

// String implements operator.Operator. Package operator can't parse it.
func (k kernelVariant) String() string {
	_, parameters, _ := strings.Cut(k.Operator.String(), "?")
	return k.kernel + "?" + parameters
}

func kernelCases(_ context.Context, s *Session, size int) (cases []*Case, _ error) {
	same := &sameResults{}
	for _, name := range []string{"plain", "warp-specialized", "cluster"} {
		c := kernelCase(s, name, size, same)
		cases = append(cases, c)
		c.ratio(overPlain, cases[0].batch, c.batch)
	}
	cases[0].Reference = true
	return cases, nil
}

// kernelCase returns a case of a minhash kernel with the worker's schedule. In every round, it compares all results of
// the first batch with the first kernel's results.
func kernelCase(s *Session, name string, size int, same *sameResults) *Case {
	op := kernelVariant{Operator: Parse(minhashSpec)[0], kernel: "minhash:" + name}
	c := batches(s, name, newDocuments([]operator.Operator{op}, size, true), workerSchedule(s), func(w *batchWork) {
		w.check = func(held []*streams.Batch, seed uint64) error { return same.check(name, seed, held[:1]) }
	})
	measure, gpu, id := c.Measure, s.isGPU(), s.info.ID
	c.Measure = func(ctx context.Context, c *Case, seed uint64) error {
		err := measure(ctx, c, seed)
		switch {
		case !errors.Is(err, device.ErrNotFound):
			return err
		case gpu:
			return Unable("this kernel library doesn't have the kernel: build the one of the same commit")
		}
		return Unable("this compares kernels of a GPU, and device %s has none of them", id)
	}
	return c
}
