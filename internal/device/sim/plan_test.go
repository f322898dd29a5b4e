package sim_test

import (
	"fmt"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
)

// TestClassicPlan runs batches with three stages of one unit each, on the given number of streams.
func TestClassicPlan(t *testing.T) {
	for _, c := range []struct {
		batches, streams int
		want             time.Duration
	}{
		{1, 1, 3 * ms},
		{4, 1, 12 * ms}, // serial, so 4 x 3
		{4, 2, 7 * ms},  // the second pair starts when the first batch is done
		{4, 3, 6 * ms},
		{4, 4, 6 * ms}, // 3 units to fill the pipeline, then one unit per batch
		{10, 3, 12 * ms},
	} {
		t.Run(fmt.Sprintf("%d batches on %d streams", c.batches, c.streams), func(t *testing.T) {
			r := open(t, sim.Options{Cost: sim.Units(ms)})
			k := r.kernel("crc")
			var streams []device.Stream
			for i := range c.streams {
				streams = append(streams, r.stream(fmt.Sprintf("lane-%d", i)))
			}
			var batches []*batch
			for i := range c.batches {
				b := r.batch(fmt.Sprint("payload ", i), "", "123456789")
				b.submit(streams[i%c.streams], k, uint64(i))
				batches = append(batches, b)
			}
			for i, b := range batches {
				r.completes(uint64(i))
				b.verify()
			}
			r.now(c.want)
		})
	}
}

// TestEnginesOverlap checks the busy times of each engine.
func TestEnginesOverlap(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Units(ms)})
	k := r.kernel("crc")
	for i := range 3 {
		r.batch("x").submit(r.stream(fmt.Sprintf("lane-%d", i)), k, uint64(i))
	}
	r.completes(0, 1, 2)
	type busy struct {
		engine sim.Engine
		stream string
		start  time.Duration
	}
	want := map[busy]bool{}
	for i := range 3 {
		lane, at := fmt.Sprintf("lane-%d", i), time.Duration(i)*ms
		want[busy{sim.CopyInEngine, lane, at}] = true
		want[busy{sim.ComputeEngine, lane, at + ms}] = true
		want[busy{sim.CopyOutEngine, lane, at + 2*ms}] = true
	}
	spans := r.dev.Trace()
	for _, s := range spans {
		if s.Engine == sim.NoEngine {
			continue
		}
		b := busy{s.Engine, s.Stream, s.Start}
		if !want[b] || s.End != s.Start+ms {
			t.Errorf("unexpected span %+v", s)
		}
		delete(want, b)
	}
	for b := range want {
		t.Errorf("missing span %+v", b)
	}
}

func TestComputeSlots(t *testing.T) {
	cost := sim.Units(ms)
	cost.ComputeSlots = 2
	r := open(t, sim.Options{Cost: cost})
	if units := r.dev.Info().Units; units != 2 {
		t.Errorf("%d units, want 2", units)
	}
	k := r.kernel("crc")
	for i := range 4 {
		s, b := r.stream(fmt.Sprintf("s%d", i)), r.batch("x")
		r.ok(s.Fill(b.dev, 0)) // takes no time
		r.ok(s.Launch(k, b.args()))
		r.ok(s.Notify(uint64(i)))
	}
	r.completes(0, 1)
	r.now(ms)
	r.completes(2, 3)
	r.now(2 * ms)
}

// TestBandwidthModel checks that each kind of operation takes its latency plus its bytes divided by its rate.
func TestBandwidthModel(t *testing.T) {
	const us = time.Microsecond
	r := open(t, sim.Options{Cost: sim.Model{
		CopyIn:  sim.Cost{Latency: 5 * us, BytesPerSecond: 1e9},
		CopyOut: sim.Cost{Latency: 3 * us, BytesPerSecond: 0.5e9},
		Fill:    sim.Cost{Latency: 1 * us, BytesPerSecond: 4e9},
		Kernel:  sim.Cost{Latency: 2 * us, BytesPerSecond: 2e9},
	}})
	s, host, mem := r.stream("s"), r.host(8000), r.memory(8000)
	want := time.Duration(0)
	run := func(what string, d time.Duration, err error) {
		t.Helper()
		r.ok(err)
		r.ok(s.Synchronize())
		want += d
		if got := r.dev.Now(); got != want {
			t.Errorf("after %s: %v, want %v", what, got, want)
		}
	}
	run("copy in", 5*us+8*us, s.CopyIn(mem, host))
	run("copy out", 3*us+16*us, s.CopyOut(host, mem))
	run("fill", 1*us+2*us, s.Fill(mem, 0))
	b := r.batch(string(make([]byte, 6000)))
	run("copy in of the batch", 5*us+6*us+8, s.CopyIn(b.dev, b.in)) // 8 bytes of offsets take 8 ns
	run("launch", 2*us+3*us, s.Launch(r.kernel("crc"), b.args()))
}

// TestReadyFirstServedFirst checks that an engine serves operations in the order in which they become ready. Operations
// that become ready together are served in the order of their enqueueing.
func TestReadyFirstServedFirst(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Units(ms)})
	k, b := r.kernel("crc"), r.batch("x")
	late, streams, batches := r.stream("late"), []device.Stream{r.stream("first"), r.stream("second")}, []*batch{r.batch("x"), r.batch("x")}
	for i, s := range streams {
		r.ok(s.Fill(batches[i].dev, 0)) // takes no time
		r.ok(s.Synchronize())
	}
	r.ok(late.CopyIn(b.dev, b.in)) // takes until 1 ms
	r.ok(late.Launch(k, b.args()))
	r.ok(late.Notify(3))
	for i, s := range streams {
		r.ok(s.Launch(k, batches[i].args())) // ready at 0, although enqueued after the late launch
		r.ok(s.Notify(uint64(i + 1)))
	}
	r.completes(1, 2, 3)
	r.now(3 * ms)
}
