package sim_test

import (
	"errors"
	"slices"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/sim"
)

// TestIllegalAddresses checks that work on nonexistent memory is enqueued and loses the device when it runs. The
// invariants build panics earlier, at the call.
func TestIllegalAddresses(t *testing.T) {
	if device.Invariants {
		t.Skip("UNDER THE INVARIANTS TAG AN ILLEGAL ADDRESS PANICS: SEE TestMisusePanics")
	}
	for name, work := range map[string]func(r *rig, s device.Stream) error{
		"wild": func(r *rig, s device.Stream) error {
			return s.Fill(device.Memory{Addr: 64, Bytes: 8}, 1)
		},
		"past the end": func(r *rig, s device.Stream) error {
			m := r.memory(512)
			return s.Fill(device.Memory{Addr: m.Addr + 256, Bytes: 257}, 1)
		},
		"far past the end": func(r *rig, s device.Stream) error {
			m := r.memory(512)
			return s.Fill(device.Memory{Addr: m.Addr + 1<<20, Bytes: 8}, 1)
		},
		"around the end of the address space": func(r *rig, s device.Stream) error {
			return s.Fill(device.Memory{Addr: ^uint64(0) - 3, Bytes: 8}, 1)
		},
		"freed": func(r *rig, s device.Stream) error {
			m, err := r.dev.Alloc(64)
			r.ok(err)
			r.ok(r.dev.Free(m))
			r.memory(64) // new memory has a different address
			return s.CopyOut(r.host(64), m)
		},
		"freed host buffer": func(r *rig, s device.Stream) error {
			h, err := r.dev.AllocHost(64)
			r.ok(err)
			r.ok(r.dev.FreeHost(h))
			return s.CopyIn(r.memory(64), h)
		},
		"freed in the pool": func(r *rig, s device.Stream) error {
			p := r.pool(device.PoolOptions{})
			m, err := p.Alloc(s, 64)
			r.ok(err)
			r.ok(p.Free(s, m))
			return s.Fill(m, 1)
		},
		"freed in the pool by another stream": func(r *rig, s device.Stream) error {
			p, other := r.pool(device.PoolOptions{}), r.stream("other")
			m, err := p.Alloc(s, 64)
			r.ok(err)
			r.ok(s.CopyIn(r.memory(1), r.host(1))) // keeps s busy
			err = s.Fill(m, 1)
			r.ok(p.Free(other, m)) // no event orders this free after the fill
			return err
		},
		"offsets that lead outside": func(r *rig, s device.Stream) error {
			b := r.batch("abc", "def")
			b.in.Bytes()[8] = 7
			r.ok(s.CopyIn(b.dev, b.in))
			return s.Launch(r.kernel("crc"), b.args())
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, sim.Options{Cost: sim.Units(ms)})
			s := r.stream("s")
			r.ok(work(r, s))
			r.ok(r.dev.Err())
			r.is(s.Synchronize(), device.ErrLost)
			r.is(r.dev.Err(), device.ErrLost)
			// Only a loss that a kernel caused may be blamed on a payload.
			if by := errors.Is(r.dev.Err(), device.ErrKernelFault); by != (name == "offsets that lead outside") {
				t.Errorf("%v: wraps ErrKernelFault: %v", r.dev.Err(), by)
			}
		})
	}
}

// TestInvalidArguments checks that invalid arguments are refused at once and that the device still works.
func TestInvalidArguments(t *testing.T) {
	r, foreign := open(t, sim.Options{}), open(t, sim.Options{})
	s, m, h := r.stream("s"), r.memory(64), r.host(64)
	k, b, p := r.kernel("crc"), r.batch("abc", "de"), r.pool(device.PoolOptions{})
	launch := func(change func(*device.LaunchArgs)) error {
		args := b.args()
		change(&args)
		return s.Launch(k, args)
	}
	second := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"copy in past the end":     s.CopyIn(m.Slice(0, 8), h),
		"copy out past the end":    s.CopyOut(h.Slice(0, 8), m),
		"record of foreign event":  s.Record(foreign.event()),
		"wait for foreign event":   s.Wait(foreign.event()),
		"launch of foreign kernel": s.Launch(foreign.kernel("crc"), b.args()),
		"short rows":               launch(func(a *device.LaunchArgs) { a.Rows.Bytes-- }),
		"short offsets":            launch(func(a *device.LaunchArgs) { a.Offsets.Bytes-- }),
		"short result":             launch(func(a *device.LaunchArgs) { a.Result.Bytes-- }),
		"result off the grid":      launch(func(a *device.LaunchArgs) { a.Result.Addr += 4 }),
		"negative rows":            launch(func(a *device.LaunchArgs) { a.Shape.Rows = -1 }),
		"longest beyond all":       launch(func(a *device.LaunchArgs) { a.Shape.Longest = 6 }),
		"no host bytes":            second(r.dev.AllocHost(0)),
		"no device bytes":          second(r.dev.Alloc(-1)),
		"no pool bytes":            second(p.Alloc(s, 0)),
		"pool on a foreign stream": second(p.Alloc(foreign.stream("f"), 8)),
		"pool of negative limit":   second(r.dev.NewPool(device.PoolOptions{Limit: -1})),
		"parameters":               second(r.dev.Kernel("crc", []byte{1})),
	} {
		if !errors.Is(err, device.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	r.is(second(r.dev.Kernel("nobody", nil)), device.ErrNotFound)
	r.ok(s.CopyIn(m, device.HostBuffer{})) // an empty copy enqueues no work
	r.ok(s.Synchronize())
	r.ok(r.dev.Err())
}

func TestMemoryLimits(t *testing.T) {
	r := open(t, sim.Options{Memory: 1024})
	if total := r.dev.Info().Memory; total != 1024 {
		t.Errorf("%d bytes of device memory, want 1024", total)
	}
	r.memory(700) // rounded up to 768 bytes
	_, err := r.dev.Alloc(257)
	r.is(err, device.ErrOutOfMemory)
	r.memory(256)
	r.host(1024)
	_, err = r.dev.AllocHost(1)
	r.is(err, device.ErrOutOfMemory)
	_, err = r.dev.Alloc(int(^uint(0) >> 1))
	r.is(err, device.ErrOutOfMemory)
}

// TestFreedMemoryIsRoom checks that freed memory can be allocated repeatedly.
func TestFreedMemoryIsRoom(t *testing.T) {
	r := open(t, sim.Options{Memory: 1024})
	for range 10 {
		m, err := r.dev.Alloc(1024)
		r.ok(err)
		h, err := r.dev.AllocHost(1024)
		r.ok(err)
		r.ok(r.dev.Free(m))
		r.ok(r.dev.FreeHost(h))
	}
}

func TestCloseReportsLeaks(t *testing.T) {
	dev, err := sim.Open(sim.Options{Seed: 5, Kernels: []device.HostKernel{crcKernel{}}, Cost: sim.Units(ms)})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, dev: dev}
	s, err := dev.NewStream("lane-0")
	r.ok(err)
	e, err := dev.NewEvent(0)
	r.ok(err)
	k, err := dev.Kernel("crc", nil)
	r.ok(err)
	p, err := dev.NewPool(device.PoolOptions{})
	r.ok(err)
	_, err = p.Alloc(s, 100)
	r.ok(err)
	m, err := dev.Alloc(10)
	r.ok(err)
	h, err := dev.AllocHost(20)
	r.ok(err)
	r.ok(s.CopyIn(m, h.Slice(0, 10)))
	r.gate(s) // leaves unfinished work in flight

	var leak *device.LeakError
	if err := dev.Close(); !errors.As(err, &leak) {
		t.Fatalf("close: %v, want a leak error", err)
	}
	want := []string{
		"event", "host buffer 20 bytes", "kernel crc", "memory 10 bytes",
		"pool 256 bytes used", "stream lane-0",
	}
	if !slices.Equal(leak.Open, want) || leak.Device != "sim-5" {
		t.Errorf("%s leaks %q, want %q", leak.Device, leak.Open, want)
	}
	// Everything was freed. Closing an object again is no error, but using it is.
	r.ok(dev.Close())
	r.ok(s.Close())
	r.ok(e.Close())
	r.ok(k.Close())
	r.ok(p.Close())
	r.is(s.Notify(1), device.ErrClosed)
	r.is(dev.FreeHost(h), device.ErrClosed)
}

func TestClosedObjects(t *testing.T) {
	r := open(t, sim.Options{Cost: sim.Units(ms)})
	s, other, e, k := r.stream("s"), r.stream("other"), r.event(), r.kernel("crc")
	p, b := r.pool(device.PoolOptions{}), r.batch("a")
	r.ok(s.CopyIn(b.dev, b.in))
	r.ok(s.Close())
	r.now(ms) // Close waited for the work
	r.is(s.Notify(1), device.ErrClosed)
	r.is(s.Synchronize(), device.ErrClosed)
	_, err := p.Alloc(s, 8)
	r.is(err, device.ErrClosed)
	r.ok(e.Close())
	r.is(other.Record(e), device.ErrClosed)
	_, err = e.Done()
	r.is(err, device.ErrClosed)
	r.ok(k.Close())
	r.is(other.Launch(k, b.args()), device.ErrClosed)
	r.ok(p.Close())
	_, err = p.Alloc(other, 8)
	r.is(err, device.ErrClosed)
	_, err = p.Stats()
	r.is(err, device.ErrClosed)
}

// TestPendingIsBounded checks that operations are refused before memory runs out if the host never waits.
func TestPendingIsBounded(t *testing.T) {
	const bound = 1 << 18
	r := open(t, sim.Options{})
	s, e := r.stream("s"), r.event()
	for range bound {
		r.ok(s.Record(e)) // done at once
	}
	shut := r.gate(s)
	for range bound - 1 {
		r.ok(s.Record(e))
	}
	r.is(s.Record(e), device.ErrOutOfMemory)
	shut()
	r.ok(s.Record(e))
	if n := len(r.dev.Trace()); n != sim.MaxTrace {
		t.Errorf("the trace has %d spans, want at most %d", n, sim.MaxTrace)
	}
}

func TestDescriptions(t *testing.T) {
	r := open(t, sim.Options{Seed: 7})
	want := device.Info{Kind: "sim", ID: "sim-7", Name: "simulated device (seed 7)", Memory: sim.DefaultMemory, Units: 1}
	if got := r.dev.Info(); got != want {
		t.Errorf("info %+v, want %+v", got, want)
	}
	if other := open(t, sim.Options{Seed: 8}); !other.dev.Epoch().Equal(r.dev.Epoch()) || r.dev.Epoch().IsZero() {
		t.Errorf("epochs %v and %v, want one for all devices", r.dev.Epoch(), other.dev.Epoch())
	}
	k := r.kernel("crc")
	if n := k.Needs(device.Shape{Rows: 3, Bytes: 9, Longest: 5}); n != (device.Needs{Result: 12}) || k.Name() != "crc" {
		t.Errorf("kernel %s needs %+v", k.Name(), n)
	}
}

// TestEventTimeErrors checks the errors for times that don't exist.
func TestEventTimeErrors(t *testing.T) {
	r := open(t, sim.Options{})
	e := r.event()
	_, err := e.Time()
	r.is(err, device.ErrInvalid) // never recorded
	untimed, err := r.dev.NewEvent(0)
	r.ok(err)
	s := r.stream("s")
	r.ok(s.Record(untimed))
	_, err = untimed.Time()
	r.is(err, device.ErrInvalid)
	r.ok(untimed.Close())
	_, err = untimed.Time()
	r.is(err, device.ErrClosed)
}
