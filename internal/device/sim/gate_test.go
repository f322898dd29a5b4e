package sim_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
)

// TestGateHoldsOneStream checks that a gate doesn't delay the work or completions of other streams, even if that work
// takes long.
func TestGateHoldsOneStream(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Units(time.Minute)})
	a, b := r.stream("a"), r.stream("b")
	shut := r.gate(a)
	r.ok(a.Notify(1))
	r.ok(b.CopyIn(r.memory(1), r.host(1)))
	r.ok(b.Notify(2))
	r.completes(2)
	r.now(time.Minute)
	shut()
	shut() // a second call has no effect
	r.completes(1)
	r.now(time.Minute)
}

func TestGateOpenedBeforeItsTurn(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Units(ms)})
	s := r.stream("s")
	r.ok(s.CopyIn(r.memory(1), r.host(1)))
	shut := r.gate(s)
	r.ok(s.Notify(1))
	shut()
	r.completes(1)
	r.now(ms)
}

// TestGateGivesWay checks that a gate opens after ten seconds if the caller has nothing else to wait for.
func TestGateGivesWay(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Units(ms)})
	a, b := r.stream("a"), r.stream("b")
	e := r.event()
	r.ok(a.CopyIn(r.memory(1), r.host(1)))
	r.gate(a) // the stream reaches the gate at 1 ms
	r.ok(a.Record(e))
	r.ok(b.Wait(e))
	r.ok(b.Synchronize())
	r.now(10*time.Second + ms)
}

// TestGateGivesWayToPolling checks that a poll opens a gate once other work has advanced the clock by more than ten
// seconds.
func TestGateGivesWayToPolling(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Units(time.Minute)})
	a, b := r.stream("a"), r.stream("b")
	e := r.event()
	r.gate(a)
	r.ok(a.Record(e))
	if done, err := e.Done(); err != nil || done {
		t.Fatalf("done %v, %v behind a gate that was just shut", done, err)
	}
	r.ok(b.CopyIn(r.memory(1), r.host(1)))
	r.ok(b.Synchronize())
	if done, err := e.Done(); err != nil || !done {
		t.Errorf("done %v, %v a minute later", done, err)
	}
}

// TestWaitCompletionBlocks checks that WaitCompletion blocks if it can wait only for a gate. It returns when the gate
// opens, work arrives, ctx ends or the device closes.
func TestWaitCompletionBlocks(t *testing.T) {
	type result struct {
		token uint64
		err   error
	}
	for name, c := range map[string]struct {
		unblock func(r *rig, open func(), free device.Stream, cancel func())
		want    result
	}{
		"open": {func(_ *rig, open func(), _ device.Stream, _ func()) { open() }, result{1, nil}},
		"work": {func(r *rig, _ func(), free device.Stream, _ func()) { r.ok(free.Notify(2)) }, result{2, nil}},
		"ctx":  {func(_ *rig, _ func(), _ device.Stream, cancel func()) { cancel() }, result{0, context.Canceled}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := open(t, sim.Options{Cost: sim.Units(ms)})
				gated, free := r.stream("gated"), r.stream("free")
				gate := r.gate(gated)
				r.ok(gated.CopyIn(r.memory(1), r.host(1)))
				r.ok(gated.Notify(1))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				got := make(chan result, 1)
				go func() {
					token, err := r.dev.WaitCompletion(ctx)
					got <- result{token, err}
				}()
				synctest.Wait() // waits until the goroutine blocks
				select {
				case g := <-got:
					t.Fatalf("WaitCompletion returned %+v while the gate was shut", g)
				default:
				}
				r.now(0)
				c.unblock(r, gate, free, cancel)
				if g := <-got; g != c.want {
					t.Errorf("WaitCompletion returned %+v, want %+v", g, c.want)
				}
				r.ok(gated.Synchronize())
			})
		})
	}
}

func TestCloseEndsWaitCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev, err := sim.Open(sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{T: t, dev: dev}
		got := make(chan error, 1)
		go func() {
			_, err := dev.WaitCompletion(t.Context())
			got <- err
		}()
		synctest.Wait()
		r.ok(dev.Close())
		r.is(<-got, device.ErrClosed)
	})
}

// TestCloseDropsCompletions checks that Close drops tokens that no call has fetched.
func TestCloseDropsCompletions(t *testing.T) {
	r := open(t, sim.Options{})
	s := r.stream("s")
	r.ok(s.Notify(1))
	r.ok(s.Close())
	r.ok(r.dev.Close())
	_, err := r.dev.WaitCompletion(t.Context())
	r.is(err, device.ErrClosed)
}

// TestHold checks that all work submitted under Hold is submitted at the same virtual time, although another goroutine
// waits.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, sim.Options{Cost: sim.Units(ms)})
		release := r.dev.Hold()
		done := make(chan time.Duration, 1)
		go func() {
			for range 4 {
				if _, err := r.dev.WaitCompletion(t.Context()); err != nil {
					t.Error(err)
				}
			}
			done <- r.dev.Now()
		}()
		k := r.kernel("crc")
		for i := range 4 {
			r.batch("x").submit(r.stream("lane"), k, uint64(i))
			synctest.Wait() // the other goroutine runs until it blocks
			r.now(0)
		}
		release()
		release()
		if at := <-done; at != 6*ms {
			t.Errorf("four batches took %v, want 6 ms", at)
		}
	})
}
