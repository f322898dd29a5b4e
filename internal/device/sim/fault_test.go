package sim_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/sim"
)

func faulty(t *testing.T, faults ...sim.Fault) *rig {
	t.Helper()
	return open(t, sim.Options{Cost: sim.Units(ms), Faults: faults})
}

func TestOutOfMemoryFault(t *testing.T) {
	r := faulty(t, sim.Fault{Kind: sim.OutOfMemory, Nth: 2})
	s, p := r.stream("s"), r.pool(device.PoolOptions{})
	for i := 1; i <= 3; i++ {
		m, err := p.Alloc(s, 256)
		if i == 2 {
			r.is(err, device.ErrOutOfMemory)
			continue
		}
		r.ok(err)
		r.ok(p.Free(s, m))
	}
	r.ok(r.dev.Err())
}

func TestPinnedOutOfMemoryFault(t *testing.T) {
	r := faulty(t, sim.Fault{Kind: sim.PinnedOutOfMemory, Nth: 2})
	r.host(64)
	_, err := r.dev.AllocHost(64)
	r.is(err, device.ErrOutOfMemory)
	r.host(64)
}

func TestLaunchFailureFault(t *testing.T) {
	r := faulty(t, sim.Fault{Kind: sim.LaunchFailure, Nth: 1})
	s, k, b := r.stream("s"), r.kernel("crc"), r.batch("a", "b")
	r.is(s.Launch(k, b.args()), device.ErrLaunch)
	b.submit(s, k, 1) // the device still works, and the stream is unchanged
	r.completes(1)
	b.verify()
	r.now(3 * ms)
}

// TestDeviceLossFault tests every way to lose the device by a fault. The first batch completes before the fault.
func TestDeviceLossFault(t *testing.T) {
	for name, f := range map[string]sim.Fault{
		"nth launch": {Kind: sim.DeviceLoss, Nth: 2},
		"marker":     {Kind: sim.DeviceLoss, Marker: []byte("poison")},
	} {
		t.Run(name, func(t *testing.T) {
			r := faulty(t, f)
			s, k := r.stream("s"), r.kernel("crc")
			good, bad := r.batch("fine", "poi", "son"), r.batch("fine", "the poison is here")
			good.submit(s, k, 1)
			bad.submit(s, k, 2)
			r.completes(1)
			good.verify()
			r.ok(r.dev.Err())
			_, err := r.dev.WaitCompletion(t.Context())
			r.is(err, device.ErrLost)
			r.now(5 * ms)
			r.is(r.dev.Err(), device.ErrKernelFault)
			r.is(r.dev.Check(t.Context()), device.ErrLost)
			allLost(r, s, k, bad)
		})
	}
}

// allLost checks that every call fails with the loss.
func allLost(r *rig, s device.Stream, k device.Kernel, b *batch) {
	r.Helper()
	r.is(r.dev.Err(), device.ErrLost)
	r.is(s.CopyIn(b.dev, b.in), device.ErrLost)
	r.is(s.Launch(k, b.args()), device.ErrLost)
	r.is(s.Notify(9), device.ErrLost)
	r.is(s.Synchronize(), device.ErrLost)
	_, err := r.dev.WaitCompletion(r.Context())
	r.is(err, device.ErrLost)
	_, err = r.dev.NewStream("another")
	r.is(err, device.ErrLost)
	_, err = r.dev.NewEvent(0)
	r.is(err, device.ErrLost)
	_, err = r.dev.AllocHost(1)
	r.is(err, device.ErrLost)
	_, err = r.dev.Alloc(1)
	r.is(err, device.ErrLost)
	_, err = r.dev.NewPool(device.PoolOptions{})
	r.is(err, device.ErrLost)
	_, err = r.dev.Kernel("crc", nil)
	r.is(err, device.ErrLost)
	_, err = r.dev.Gate(s)
	r.is(err, device.ErrLost)
	r.is(r.dev.Close(), device.ErrLost)
	r.ok(r.dev.Close())
}

// TestBrokenKernelLosesTheDevice checks that a failing kernel also loses the device, and that the error contains the
// kernel's error.
func TestBrokenKernelLosesTheDevice(t *testing.T) {
	r := faulty(t)
	s, b := r.stream("lane-0"), r.batch("a")
	r.ok(s.CopyIn(b.dev, b.in))
	r.ok(s.Launch(r.kernel("broken"), b.args()))
	err := s.Synchronize()
	r.is(err, device.ErrLost)
	for _, words := range []string{"divided by zero", "operator broken: launch", "lane-0"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("error %q does not say %q", err, words)
		}
	}
}

// TestCompletionsBeforeTheLoss checks that completions from before the loss are still returned.
func TestCompletionsBeforeTheLoss(t *testing.T) {
	r := faulty(t, sim.Fault{Kind: sim.DeviceLoss, Nth: 1})
	s, b := r.stream("s"), r.batch("a")
	r.ok(s.Notify(1))
	r.ok(s.Launch(r.kernel("crc"), b.args()))
	r.ok(s.Notify(2))
	r.is(s.Synchronize(), device.ErrLost)
	r.completes(1)
	_, err := r.dev.WaitCompletion(t.Context())
	r.is(err, device.ErrLost)
}

func TestLateCompletionFault(t *testing.T) {
	r := faulty(t, sim.Fault{Kind: sim.LateCompletion, Nth: 1, Delay: 5 * ms})
	s, m, h := r.stream("s"), r.memory(1), r.host(1)
	for token := range uint64(3) {
		r.ok(s.CopyIn(m, h))
		r.ok(s.Notify(token))
	}
	r.completes(1, 2)
	r.now(3 * ms)
	r.completes(0)
	r.now(6 * ms) // reached at 1 ms and delivered 5 ms late
}

func TestLostCompletionFault(t *testing.T) {
	r := faulty(t, sim.Fault{Kind: sim.LostCompletion, Nth: 2})
	s := r.stream("s")
	for token := range uint64(3) {
		r.ok(s.Notify(token))
	}
	r.completes(0, 2)
	r.ok(s.Synchronize())
	r.ok(r.dev.Err())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.dev.WaitCompletion(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for the lost completion: got %v, want a cancellation", err)
	}
}

// TestFaultProbability checks that the share of failures matches the requested probability, and that only the seed
// determines the failing calls.
func TestFaultProbability(t *testing.T) {
	const launches, p = 2000, 0.25
	refused := func(seed uint64) (which [launches]bool, n int) {
		r := open(t, sim.Options{Seed: seed, Faults: []sim.Fault{{Kind: sim.LaunchFailure, Probability: p}}})
		s, k, b := r.stream("s"), r.kernel("crc"), r.batch("a")
		r.ok(s.CopyIn(b.dev, b.in))
		for i := range launches {
			if err := s.Launch(k, b.args()); err != nil {
				r.is(err, device.ErrLaunch)
				which[i] = true
				n++
			}
		}
		r.ok(s.Synchronize())
		return which, n
	}
	first, n := refused(1)
	again, _ := refused(1)
	other, _ := refused(2)
	if first != again {
		t.Error("one seed refused different launches")
	}
	if first == other {
		t.Error("two seeds refused the same launches")
	}
	// Five standard deviations of a binomial count: sqrt(2000 x 0.25 x 0.75) is about 19.
	if n < launches*p-97 || n > launches*p+97 {
		t.Errorf("%d of %d launches refused, want about %v", n, launches, launches*p)
	}
}

func TestOpenNamesEveryProblem(t *testing.T) {
	_, err := sim.Open(sim.Options{
		Kernels: []device.HostKernel{crcKernel{}, crcKernel{}},
		Faults: []sim.Fault{
			{Kind: sim.LaunchFailure},
			{Kind: sim.OutOfMemory, Marker: []byte("x")},
			{Kind: sim.LateCompletion, Nth: 1},
			{Kind: sim.DeviceLoss, Nth: 1, Marker: []byte("x")},
			{Kind: 99, Nth: 1},
			{Kind: sim.LostCompletion, Probability: 1.5},
		},
	})
	if !errors.Is(err, device.ErrInvalid) {
		t.Fatalf("error %v, want invalid", err)
	}
	for _, words := range []string{
		`"crc"`, "fault 0", "fault 1", "fault 2", "fault 3", "fault 4", "fault 5",
	} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("error does not say %q: %v", words, err)
		}
	}
}
