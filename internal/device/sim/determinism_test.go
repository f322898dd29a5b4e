package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
)

// program runs a random sequence of calls on a device with the given seed and returns the device's trace. calls is the
// seed of the sequence.
func program(t *testing.T, seed, calls uint64) []sim.Span {
	t.Helper()
	cost := sim.Units(10 * time.Microsecond)
	cost.Jitter = 0.5
	r := open(t, sim.Options{Seed: seed, Cost: cost, Faults: []sim.Fault{{Kind: sim.LaunchFailure, Probability: 0.1}}})
	rng := rand.New(rand.NewPCG(calls, 0))
	k, e := r.kernel("crc"), r.event()
	r.ok(r.stream("first").Record(e))
	var streams []device.Stream
	var batches []*batch // each stream has its own memory, because nothing orders the streams
	var mems []device.Memory
	var hosts []device.HostBuffer
	for i := range 4 {
		s, b := r.stream(fmt.Sprint(i)), r.batch("some", "rows", "of no account")
		r.ok(s.CopyIn(b.dev, b.in))
		streams, batches = append(streams, s), append(batches, b)
		mems, hosts = append(mems, r.memory(1<<16)), append(hosts, r.host(1<<16))
	}
	pending := 0
	for range 500 {
		i, n := rng.IntN(len(streams)), 1+rng.IntN(1<<16)
		s, b, mem, host := streams[i], batches[i], mems[i], hosts[i]
		switch rng.IntN(8) {
		case 0:
			r.ok(s.CopyIn(mem, host.Slice(0, n)))
		case 1:
			r.ok(s.CopyOut(host, mem.Slice(0, n)))
		case 2:
			r.ok(s.Fill(mem.Slice(0, n), byte(n)))
		case 3:
			if err := s.Launch(k, b.args()); err != nil {
				r.is(err, device.ErrLaunch)
			}
		case 4:
			r.ok(s.Record(e))
		case 5:
			r.ok(s.Wait(e))
		case 6:
			r.ok(s.Notify(uint64(n)))
			pending++
		case 7:
			if pending > 0 {
				_, err := r.dev.WaitCompletion(t.Context())
				r.ok(err)
				pending--
			}
		}
	}
	for _, s := range streams {
		r.ok(s.Synchronize())
	}
	spans := r.dev.Trace()
	if len(spans) == sim.MaxTrace || len(spans) < 300 {
		t.Fatalf("%d spans", len(spans))
	}
	return spans
}

func TestDeterminism(t *testing.T) {
	one := program(t, 1, 1)
	if again := program(t, 1, 1); !slices.Equal(one, again) {
		t.Error("the same seed and calls gave different times")
	}
	if other := program(t, 2, 1); slices.Equal(one, other) {
		t.Error("another seed gave the same times despite jitter")
	}
}

// TestTraceObeysTheRules checks the traces of random programs. Streams must run in order, and engines must run one
// operation at a time.
func TestTraceObeysTheRules(t *testing.T) {
	for calls := range uint64(20) {
		lastOf := map[string]sim.Span{}
		busyUntil := map[sim.Engine]sim.Span{}
		spans := program(t, calls, calls)
		for _, s := range spans {
			if before := lastOf[s.Stream]; s.Seq < before.Seq || s.Start < before.End || s.Start < s.Enqueued {
				t.Fatalf("stream %s: %+v after %+v", s.Stream, s, before)
			}
			lastOf[s.Stream] = s
			if s.Engine == sim.NoEngine {
				continue
			}
			if before := busyUntil[s.Engine]; s.Start < before.End {
				t.Fatalf("engine %v: %+v during %+v", s.Engine, s, before)
			}
			busyUntil[s.Engine] = s
		}
	}
}

// TestJitterStretches checks that jitter never shortens an operation and never extends it by more than the limit.
func TestJitterStretches(t *testing.T) {
	cost := sim.Units(ms)
	cost.Jitter = 0.1
	r := open(t, sim.Options{Seed: 3, Cost: cost})
	s, m, h := r.stream("s"), r.memory(1), r.host(1)
	for range 200 {
		r.ok(s.CopyIn(m, h))
	}
	r.ok(s.Synchronize())
	spans := r.dev.Trace()
	longest := ms
	for _, s := range spans {
		d := s.End - s.Start
		if d < ms || d > ms+ms/10 {
			t.Fatalf("a copy took %v", d)
		}
		longest = max(longest, d)
	}
	if longest < ms+ms/20 {
		t.Errorf("the longest of 200 copies took %v: the jitter is not spread over its range", longest)
	}
}

// TestConcurrentUse runs several submitters and a waiter. Every batch must come back once, with correct results.
func TestConcurrentUse(t *testing.T) {
	const submitters, rounds = 4, 50
	r := open(t, sim.Options{Cost: sim.Units(10 * time.Microsecond)})
	k := r.kernel("crc")
	var done [submitters]chan struct{}
	var group sync.WaitGroup
	for i := range submitters {
		done[i] = make(chan struct{}, 1)
		s, b := r.stream(fmt.Sprint(i)), r.batch("payload", fmt.Sprint(i))
		group.Go(func() {
			for range rounds {
				for _, err := range []error{
					s.CopyIn(b.dev, b.in), s.Launch(k, b.args()), s.CopyOut(b.out, b.result), s.Notify(uint64(i)),
				} {
					if err != nil {
						t.Error(err)
						return
					}
				}
				<-done[i]
				b.verify()
				clear(b.out.Bytes())
			}
		})
	}
	for range submitters * rounds {
		token, err := r.dev.WaitCompletion(t.Context())
		r.ok(err)
		done[token] <- struct{}{}
	}
	group.Wait()
}
