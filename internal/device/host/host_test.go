package host_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/host"
)

type rig struct {
	*testing.T
	dev   *host.Device
	s     device.Stream
	gates []func()
}

func newRig(t *testing.T, kernels ...device.HostKernel) *rig {
	t.Helper()
	d, err := host.Open(host.Options{Cores: 3, Kernels: kernels, MemoryLimit: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, dev: d}
	t.Cleanup(func() {
		r.openGates()
		_ = d.Close() // a test of Close calls Close itself and checks its error
	})
	r.s = r.stream("s")
	return r
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) fails(err, kind error) {
	r.Helper()
	if !errors.Is(err, kind) {
		r.Fatalf("got error %v, want one that wraps %q", err, kind)
	}
}

func (r *rig) memory(n int) device.Memory {
	r.Helper()
	m, err := r.dev.Alloc(n)
	r.ok(err)
	return m
}

func (r *rig) host(n int) device.HostBuffer {
	r.Helper()
	b, err := r.dev.AllocHost(n)
	r.ok(err)
	return b
}

func (r *rig) stream(name string) device.Stream {
	r.Helper()
	s, err := r.dev.NewStream(name)
	r.ok(err)
	return s
}

func (r *rig) gate(s device.Stream) (open func()) {
	r.Helper()
	open, err := r.dev.Gate(s)
	r.ok(err)
	r.gates = append(r.gates, open)
	return open
}

func TestOpenRefusesNonsense(t *testing.T) {
	for _, o := range []host.Options{
		{Cores: -1}, {MemoryLimit: -1}, {MemoryLimit: 1 << 62},
		{Kernels: []device.HostKernel{kernelFunc(nil), kernelFunc(nil)}}, // two kernels with the same name
	} {
		if d, err := host.Open(o); !errors.Is(err, device.ErrInvalid) || d != nil {
			t.Errorf("%+v: got %v, %v, want ErrInvalid", o, d, err)
		}
	}
}

func TestOpenDefaults(t *testing.T) {
	d, err := host.Open(host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if info := d.Info(); info.Memory != host.DefaultMemory || info.Units < 1 || info.Kind != "host" {
		t.Errorf("defaults give %+v", info)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestMemoryLimits checks that allocations of both kinds of memory fail at the limit and succeed again after a free.
func TestMemoryLimits(t *testing.T) {
	r := newRig(t)
	m := r.memory(200 << 20)
	_, err := r.dev.Alloc(100 << 20)
	r.fails(err, device.ErrOutOfMemory)
	p, err := r.dev.NewPool(device.PoolOptions{})
	r.ok(err)
	_, err = p.Alloc(r.s, 100<<20)
	r.fails(err, device.ErrOutOfMemory)
	r.ok(r.dev.Free(m))
	r.memory(100 << 20)

	b := r.host(200 << 20)
	_, err = r.dev.AllocHost(100 << 20)
	r.fails(err, device.ErrOutOfMemory)
	r.ok(r.dev.FreeHost(b))
	r.host(100 << 20)
}

// TestPoolGivesWayToItself checks that a pool releases its unused memory if its own allocation needs that memory on a
// full device.
func TestPoolGivesWayToItself(t *testing.T) {
	r := newRig(t)
	p, err := r.dev.NewPool(device.PoolOptions{ReleaseThreshold: 1 << 40})
	r.ok(err)
	m, err := p.Alloc(r.s, 150<<20)
	r.ok(err)
	r.ok(p.Free(r.s, m))
	r.ok(r.s.Synchronize())
	_, err = p.Alloc(r.s, 200<<20) // the pool must release the 150 MiB first
	r.ok(err)
}

// TestNoGoroutineLeft checks that Close ends all goroutines. A synctest bubble ends only after all of its goroutines
// have ended.
func TestNoGoroutineLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, spread)
		for range 5 {
			r.ok(r.stream("more").Notify(1))
		}
		k, err := r.dev.Kernel(spread.Name(), nil)
		r.ok(err)
		r.launch(r.s, k)
		r.ok(r.s.Synchronize())
		var leak *device.LeakError
		if err := r.dev.Close(); !errors.As(err, &leak) || len(leak.Open) != 6+1+2 {
			t.Errorf("close with 6 streams, a kernel and 2 allocations open: got %v", err)
		}
	})
}

// TestGateGivesWay checks that a gate opens by itself after ten seconds of the device's clock.
func TestGateGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		before := r.dev.Now()
		r.gate(r.s)
		r.ok(r.s.Synchronize())
		if held := r.dev.Now() - before; held != 10*time.Second {
			t.Errorf("held for %v, want 10s", held)
		}
		r.ok(r.s.Close())
		r.ok(r.dev.Close())
	})
}

// TestQueueIsBounded checks that a call waits for queue space if 1024 operations are queued. The call returns when the
// stream closes.
func TestQueueIsBounded(t *testing.T) {
	const bound, calls = 1024, 3000
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		e, err := r.dev.NewEvent(0)
		r.ok(err)
		open := r.gate(r.s)
		accepted, failed := 1, error(nil) // the gate is the first operation
		go func() {
			for ; accepted < calls && failed == nil; accepted++ {
				failed = r.s.Record(e)
			}
		}()
		synctest.Wait()
		if accepted != bound {
			t.Errorf("%d operations were accepted by a stalled stream, want %d", accepted, bound)
		}
		open()
		r.ok(r.s.Synchronize())
		synctest.Wait()
		if accepted != calls || failed != nil {
			t.Errorf("once the stream runs, %d operations were accepted, want %d; error %v", accepted, calls, failed)
		}
	})
}

func TestCloseSendsBlockedCallAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		e, err := r.dev.NewEvent(0)
		r.ok(err)
		r.gate(r.s)
		var failed error
		go func() {
			for failed == nil {
				failed = r.s.Record(e)
			}
		}()
		synctest.Wait() // the goroutine waits for queue space by now
		r.ok(r.s.Close())
		synctest.Wait()
		r.fails(failed, device.ErrClosed)
	})
}

// TestCompletionsAreBounded checks that notifications are refused if too many tokens are waiting.
func TestCompletionsAreBounded(t *testing.T) {
	const bound = 1 << 16
	r := newRig(t)
	for i := range uint64(bound) {
		r.ok(r.s.Notify(i))
	}
	r.fails(r.s.Notify(0), device.ErrOutOfMemory)
	token, err := r.dev.WaitCompletion(context.Background())
	if err != nil || token != 0 {
		t.Errorf("got token %d, %v, want the first, 0", token, err)
	}
	r.ok(r.s.Notify(bound))
	r.fails(r.s.Notify(0), device.ErrOutOfMemory)
}

func (r *rig) openGates() {
	for _, open := range r.gates {
		open()
	}
}
