package streams_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/device/software"
	"millrace/internal/streams"
)

// The test compares the stages in the records with the activity of the simulated engines. Batches are random, and their
// copies and kernels take random times, so batches overtake each other.
func TestStagesAreWhenTheEnginesWorked(t *testing.T) {
	perStage := streams.DoubleBuffered
	perStage.Name, perStage.Lanes, perStage.Buffers = "stream per stage, two buffers", 3, 2
	allShared := streams.Triple
	allShared.CopiesFrom, allShared.SharedFrom = 0, 0
	hostWaits := streams.Overlapped
	hostWaits.Name, hostWaits.HostWaits = "host waits", true
	schedules := []streams.Schedule{streams.Overlapped, streams.DoubleBuffered, perStage, allShared, hostWaits}
	for from, name := range map[int]string{0: "mixed alone", 1500: "own and mixed", 3000: "own, mixed and shared"} {
		mixed := streams.Triple
		mixed.Name, mixed.CopiesFrom, mixed.SharedFrom, mixed.Completion = name, from, 1<<30, streams.ByNotify
		if from == 3000 {
			mixed.SharedFrom = 6000
		}
		schedules = append(schedules, mixed)
	}
	inPlace := streams.Triple
	inPlace.Name, inPlace.CopiesFrom, inPlace.SharedFrom, inPlace.Completion = "in place, mixed and shared", 1500, 6000, streams.ByNotify
	schedules = append(schedules, inPlace)
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for _, schedule := range schedules {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s, seed %d", schedule.Name, seed), func(t *testing.T) {
				inPlaceUpTo := 0
				if schedule.Name == inPlace.Name {
					inPlaceUpTo = 1500
				}
				d, p := unevenPipeline(t, seed, schedule, inPlaceUpTo)
				records := randomRun(t, d, p, rand.New(rand.NewPCG(seed, 2)), 50)
				trace := d.Trace()
				if len(trace) == sim.MaxTrace {
					t.Fatal("the trace is full and may lack spans")
				}
				compareStages(t, records, trace, schedule)
				compareFigures(t, stats(t, p), trace)
			})
		}
	}
}

// If the host waits between stages, it may wait for a long time, like a goroutine without a processor. The device then
// has no work and must not appear busy with computing.
func TestAStageBeginsNoSoonerThanTheHostAsks(t *testing.T) {
	d := openSim(t, sim.Options{Cost: sim.Units(unit)})
	spied := spyOn(d)
	p := newPipeline(t, spied, streams.Options{Schedule: streams.Serial, Operators: operators(t, "minhash?hashes=2")})
	away, back := time.Duration(0), time.Duration(0)
	spied.inEnqueue = func(commands []device.Command) {
		if !slices.ContainsFunc(commands, func(c device.Command) bool { return c.Kind == device.DoLaunch }) {
			return
		}
		away = d.Now()
		e, err := d.NewEvent(0)
		if err != nil {
			t.Error(err)
			return
		}
		for range 50 {
			if _, err := e.Done(); err != nil { // each poll advances the simulated host's time by a microsecond
				t.Error(err)
			}
		}
		back = d.Now()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	submit(t, p, someRows(1, 5, 100))
	b := <-p.Completed()
	defer b.Release()
	if back <= away {
		t.Fatalf("no time passed while the host waited: from %v to %v", away, back)
	}
	compute := b.ReadRecord().Stages[streams.Compute]
	if want := (streams.Span{Start: back, End: back + unit}); compute != want {
		t.Errorf("computing was placed at %v, want %v: the host waited until then", compute, want)
	}
	if busy := stats(t, p).Busy; busy != 3*unit {
		t.Errorf("the device was busy for %v, want %v", busy, 3*unit)
	}
}

// unevenPipeline returns a pipeline on which the stages of batches take very different times. Batches of up to inPlace
// bytes are not copied.
func unevenPipeline(t *testing.T, seed uint64, schedule streams.Schedule, inPlace int) (*sim.Device, *streams.Pipeline) {
	slow := sim.Cost{Latency: time.Microsecond, BytesPerSecond: 2e8}
	d := openSim(t, sim.Options{Seed: seed, MaxInPlace: inPlace, Cost: sim.Model{
		CopyIn: slow, CopyOut: sim.Cost{Latency: 3 * time.Microsecond, BytesPerSecond: 5e7},
		Kernel: sim.Cost{Latency: time.Microsecond, BytesPerSecond: 1e8}, Jitter: 1, ComputeSlots: 1 + int(seed%2)*3, // with several slots, batches overtake each other
	}})
	return d, newPipeline(t, d, streams.Options{Lanes: 4, Schedule: schedule, Operators: operators(t, "crc32c,minhash?hashes=2")})
}

// randomRun submits n batches of random sizes, some at the same time. It returns their records in the order of
// submission.
func randomRun(t *testing.T, d *sim.Device, p *streams.Pipeline, random *rand.Rand, n int) []streams.Record {
	t.Helper()
	var records []streams.Record
	for submitted := 0; len(records) < n; {
		release := d.Hold() // stops the time during the calls of a submission
		for free := p.Slots() - (submitted - len(records)); free > 0 && submitted < n && random.IntN(5) > 0; free-- {
			submit(t, p, someRows(random.Uint64(), 1+random.IntN(6), 1+random.IntN(3000)))
			submitted++
		}
		release()
		for out := submitted - len(records); out > 0 && random.IntN(3) > 0; out-- {
			b := <-p.Completed()
			if b.Err() != nil {
				t.Fatal(b.Err())
			}
			records = append(records, *b.ReadRecord())
			b.Release()
		}
	}
	slices.SortFunc(records, func(x, y streams.Record) int { return int(x.Batch) - int(y.Batch) })
	return records
}

// stageSpans returns, for each batch in the order of submission, the first and the last span of one kind of operation.
// Each launch of an operator is a span. A batch without such operations has zero spans.
func stageSpans(trace []sim.Span, records []streams.Record, kind software.Kind) (first, last []sim.Span) {
	trace = slices.DeleteFunc(slices.Clone(trace), func(s sim.Span) bool { return s.Kind != kind })
	slices.SortFunc(trace, func(x, y sim.Span) int { return int(x.Seq) - int(y.Seq) }) // sorts by submission
	for _, r := range records {
		each := 1
		switch {
		case kind == software.Launch:
			each = 2
		case r.InPlace:
			first, last = append(first, sim.Span{}), append(last, sim.Span{})
			continue
		}
		first, last = append(first, trace[0]), append(last, trace[each-1])
		trace = trace[each:]
	}
	return first, last
}

// turn returns the end time of all work that was enqueued on the stream of s before s.
func turn(trace []sim.Span, s sim.Span) (at time.Duration) {
	for _, o := range trace {
		if o.Stream == s.Stream && o.Seq < s.Seq && o.Engine != sim.NoEngine {
			at = max(at, o.End)
		}
	}
	return at
}

// compareStages compares the records with the activity of the engines. Compute starts when the batch has been copied in
// and its stream has reached the kernel. It includes the wait for other kernels.
func compareStages(t *testing.T, records []streams.Record, trace []sim.Span, schedule streams.Schedule) {
	t.Helper()
	in, _ := stageSpans(trace, records, software.CopyIn)
	kernel, lastKernel := stageSpans(trace, records, software.Launch)
	out, _ := stageSpans(trace, records, software.CopyOut)
	for i, r := range records {
		computing := max(in[i].End, turn(trace, kernel[i]))
		if schedule.HostWaits || r.InPlace {
			computing = max(computing, kernel[i].Enqueued)
		}
		for stage, want := range map[streams.Stage]streams.Span{
			streams.CopyIn:  {Start: in[i].Start, End: in[i].End},
			streams.Compute: {Start: computing, End: lastKernel[i].End},
			streams.CopyOut: {Start: out[i].Start, End: out[i].End},
		} {
			if got := r.Stages[stage]; got != want {
				t.Errorf("batch %d on lane %d, %d bytes: stage %v is %v, but the engine worked on it at %v", r.Batch, r.Lane, r.Bytes, stage, got, want)
			}
		}
		for s := streams.CopyIn; s <= streams.CopyOut && !r.InPlace; s++ {
			if before, at := r.Stages[s-1], r.Stages[s]; at.Start < before.End || at.End < at.Start {
				t.Errorf("batch %d: %v at %v starts before the end of %v at %v", r.Batch, s, at, s-1, before)
			}
		}
	}
}

// An engine with one copy at a time is busy until the end of its latest known copy, even if an earlier copy becomes
// known later. In this test, three copies out of 3 units follow each other from time 2 on. The first batch's completion
// arrives after the second's.
func TestAnEngineIsNeverFreeSoonerThanWasKnown(t *testing.T) {
	stage := sim.Cost{Latency: unit}
	d := openSim(t, sim.Options{
		Cost:   sim.Model{CopyIn: stage, Kernel: stage, CopyOut: sim.Cost{Latency: 3 * unit}},
		Faults: []sim.Fault{{Kind: sim.LateCompletion, Nth: 1, Delay: 4 * unit}},
	})
	p := newPipeline(t, d, streams.Options{Lanes: 3, Operators: operators(t, "crc32c")})
	records := runBatches(t, d, p, 3)
	for i, want := range []uint64{2, 1, 3} {
		if records[i].Batch != want {
			t.Fatalf("batch %d came back in place %d, want batch %d", records[i].Batch, i, want)
		}
	}
	if got, want := records[2].Stages[streams.CopyOut], (streams.Span{Start: 8 * unit, End: 11 * unit}); got != want {
		t.Errorf("the third copy out was %v, want %v, because the second copy occupied the engine before", got, want)
	}
}

// compareFigures computes the figures of an idle device from its trace and compares them with got.
func compareFigures(t *testing.T, got streams.Stats, trace []sim.Span) {
	t.Helper()
	var edges []time.Duration
	for _, s := range trace {
		edges = append(edges, s.Start, s.End)
	}
	slices.Sort(edges)
	var engines [streams.NumEngines]time.Duration
	var busy, overlap time.Duration
	for i := 1; i < len(edges); i++ {
		on := [streams.NumEngines]bool{}
		for _, s := range trace {
			if s.Engine != sim.NoEngine && s.Start <= edges[i-1] && edges[i] <= s.End {
				on[s.Engine-sim.CopyInEngine] = true
			}
		}
		running := 0
		for e := range on {
			if on[e] {
				running++
				engines[e] += edges[i] - edges[i-1]
			}
		}
		if running > 0 {
			busy += edges[i] - edges[i-1]
		}
		if running > 1 {
			overlap += edges[i] - edges[i-1]
		}
	}
	if got.Engines != engines || got.Busy != busy || got.Overlap != overlap {
		t.Errorf("engines %v, busy %v, overlap %v; the trace has %v, %v, %v",
			got.Engines, got.Busy, got.Overlap, engines, busy, overlap)
	}
	if got.Busy > got.Uptime {
		t.Errorf("busy for %v of %v", got.Busy, got.Uptime)
	}
}

// bySize returns the worker's schedule on a GPU. Its thresholds give the tests batches of both kinds.
func bySize() streams.Schedule {
	s := streams.Triple
	s.CopiesFrom, s.SharedFrom = 1500, 3000
	return s
}
