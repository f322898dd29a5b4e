package sim_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
)

// ends returns when each operation of a kind ended, in that order.
func ends(r *rig, kind sim.Kind) (at []time.Duration) {
	r.Helper()
	spans, _ := r.dev.Trace()
	for _, s := range spans {
		if s.Kind == kind {
			at = append(at, s.End)
		}
	}
	return at
}

// TestCopiesOfBothWaysSlowEachOther follows copies that start and end at different instants. Copies run at half speed
// beside each other. A copy in of 10 ms starts alone and meets a copy out of 2 ms at 4 ms, with 6 ms left. The copy out
// takes 4 ms, in which the copy in advances by 2 ms. So the copy in ends at 4 + 4 + 4 ms.
func TestCopiesOfBothWaysSlowEachOther(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Model{
		CopyIn: sim.Cost{Latency: 10 * ms}, CopyOut: sim.Cost{Latency: 2 * ms}, Fill: sim.Cost{Latency: 4 * ms}, CopyShare: 0.5,
	}})
	in, out := r.stream("in"), r.stream("out")
	mem, host := r.memory(1), r.host(1)
	r.ok(in.CopyIn(mem, host))
	r.ok(out.Fill(r.memory(1), 0)) // until 4 ms; slows no copy
	r.ok(out.CopyOut(r.host(1), r.memory(1)))
	r.ok(in.Synchronize())
	r.ok(out.Synchronize())
	if at := ends(r, sim.CopyOut); at[0] != 8*ms {
		t.Errorf("the copy out ended at %v, want 8ms", at[0])
	}
	if at := ends(r, sim.CopyIn); at[0] != 12*ms {
		t.Errorf("the copy in ended at %v, want 12ms", at[0])
	}
}

// TestCopiesSlowAKernel checks that a kernel runs at a quarter of its speed beside a copy, and that the copy keeps its
// full speed.
func TestCopiesSlowAKernel(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Model{CopyIn: sim.Cost{Latency: 4 * ms}, Kernel: sim.Cost{Latency: 3 * ms}, ComputeShare: 0.25}})
	k, b := r.kernel("crc"), r.batch("x")
	copies, kernels := r.stream("copies"), r.stream("kernels")
	r.ok(copies.CopyIn(r.memory(1), r.host(1)))
	r.ok(kernels.Launch(k, b.args()))
	r.ok(kernels.Synchronize())
	r.now(6 * ms) // 1 ms of its work is done at 4 ms, and then it takes 2 ms more
	if at := ends(r, sim.CopyIn); at[0] != 4*ms {
		t.Errorf("the copy ended at %v, want 4ms", at[0])
	}
}

// TestSharesLoseNoTime checks a copy beside a hundred short copies in the other direction. It ends, to the nanosecond,
// at the time that its summed progress gives, although its end changed at each of them.
func TestSharesLoseNoTime(t *testing.T) {
	const short, shorts = 333 * time.Nanosecond, 100
	r := open(t, sim.Options{Cost: sim.Model{
		CopyIn: sim.Cost{Latency: time.Millisecond}, CopyOut: sim.Cost{Latency: short}, Fill: sim.Cost{Latency: time.Microsecond},
		CopyShare: 0.9,
	}})
	in, out := r.stream("in"), r.stream("out")
	r.ok(in.CopyIn(r.memory(1), r.host(1)))
	mem, host := r.memory(1), r.host(1)
	for range shorts {
		r.ok(out.Fill(mem, 0)) // so that the copy in runs alone in between
		r.ok(out.CopyOut(host, mem))
	}
	r.ok(in.Synchronize())
	spans, _ := r.dev.Trace()
	var beside time.Duration
	for _, s := range spans {
		if s.Kind == sim.CopyOut {
			beside += s.End - s.Start
		}
	}
	want := time.Millisecond + beside/10 // beside others, it loses a tenth of its progress
	if got := ends(r, sim.CopyIn)[0]; got < want-time.Nanosecond || got > want+time.Nanosecond {
		t.Errorf("the copy in ended at %v, want %v", got, want)
	}
}

// TestDispatchKeepsTheStreamAndNoEngine checks that on one stream each change of engine takes the dispatch time, and
// that with more streams it is hidden.
func TestDispatchKeepsTheStreamAndNoEngine(t *testing.T) {
	cost := sim.Units(4 * ms)
	cost.Dispatch = ms
	for _, c := range []struct {
		streams int
		want    time.Duration
	}{
		{1, 60 * ms}, // 4 batches of 3 stages, each a dispatch and 4 ms
		{4, 27 * ms}, // 3 dispatches and 3 stages of the first batch, then an engine that is always busy
	} {
		r := open(t, sim.Options{Cost: cost})
		k := r.kernel("crc")
		var streams []device.Stream
		for i := range c.streams {
			streams = append(streams, r.stream(fmt.Sprint(i)))
		}
		for i := range 4 {
			r.batch("x").submit(streams[i%c.streams], k, uint64(i))
		}
		r.completes(0, 1, 2, 3)
		r.now(c.want)
	}
}

// TestDispatchFollowsEvents checks that the dispatch time starts at the event, however long the stream has waited.
// There is none if the event was reached long ago, or between two operations on the same engine.
func TestDispatchFollowsEvents(t *testing.T) {
	cost := sim.Units(4 * ms)
	cost.Dispatch = ms
	r := open(t, sim.Options{Cost: cost})
	in, out := r.stream("in"), r.stream("out")
	mem, host := r.memory(1), r.host(1)
	var copied [3]device.Event
	for i := range copied {
		copied[i] = r.event()
		r.ok(in.CopyIn(mem, host)) // until 5, 9 and 13 ms
		r.ok(in.Record(copied[i]))
	}
	r.ok(out.Wait(copied[0]))
	r.ok(out.CopyOut(r.host(1), r.memory(1))) // 6 to 10 ms
	r.ok(out.Wait(copied[1]))                 // reached at 9 ms
	r.ok(out.CopyOut(r.host(1), r.memory(1))) // 10 to 14 ms
	r.ok(out.Wait(copied[2]))                 // reached at 13 ms
	r.ok(out.CopyOut(r.host(1), r.memory(1))) // 14 to 18 ms
	r.ok(out.Synchronize())
	r.now(18 * ms)
	if at, want := ends(r, sim.CopyOut), []time.Duration{10 * ms, 14 * ms, 18 * ms}; !slices.Equal(at, want) {
		t.Errorf("the copies out ended at %v, want %v", at, want)
	}
}

// TestCompletionLatency checks that tokens arrive late and in order, and that the stream doesn't wait for them.
func TestCompletionLatency(t *testing.T) {
	cost := sim.Units(ms)
	cost.Completion = 5 * ms
	r := open(t, sim.Options{Cost: cost})
	s, mem, host := r.stream("s"), r.memory(1), r.host(1)
	for token := range uint64(3) {
		r.ok(s.CopyIn(mem, host))
		r.ok(s.Notify(token))
	}
	for token := range uint64(3) {
		r.completes(token)
		r.now(time.Duration(token+1)*ms + 5*ms)
	}
	if at := ends(r, sim.CopyIn); at[2] != 3*ms {
		t.Errorf("the last copy ended at %v, want 3ms", at[2])
	}
}

// TestHostTime checks that waking from Synchronize and Spend move the clock, and that the device works during that
// time.
func TestHostTime(t *testing.T) {
	cost := sim.Units(4 * ms)
	cost.Synchronize = ms
	r := open(t, sim.Options{Cost: cost})
	s, other, mem, host := r.stream("s"), r.stream("other"), r.memory(1), r.host(1)
	r.ok(s.CopyIn(mem, host))
	r.dev.Spend(3 * ms)
	r.now(3 * ms)
	r.ok(other.Fill(r.memory(1), 0)) // takes no time
	r.ok(s.Synchronize())
	r.now(5 * ms)
	r.ok(s.CopyIn(mem, host)) // 5 to 9 ms
	r.dev.Spend(10 * ms)
	r.ok(s.Synchronize())
	r.now(16 * ms)
	if at := ends(r, sim.CopyIn); at[1] != 9*ms {
		t.Errorf("the second copy ended at %v, want 9ms, while the host was at work", at[1])
	}
}

func TestModelsThatMakeNoSense(t *testing.T) {
	for name, m := range map[string]sim.Model{
		"copy share":    {CopyShare: 1.1},
		"compute share": {ComputeShare: -0.5},
		"standstill":    {CopyShare: 1e-9},
		"dispatch":      {Dispatch: -1},
		"completion":    {Completion: 48 * time.Hour},
		"synchronize":   {Synchronize: -ms},
	} {
		_, err := sim.Open(sim.Options{Cost: m})
		if !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), "must be from") {
			t.Errorf("%s: Open = %v, want ErrInvalid and the bounds", name, err)
		}
	}
}
