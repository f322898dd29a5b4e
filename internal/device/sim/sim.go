// Package sim implements a device on a virtual clock. Scheduling code that drives a GPU runs on it unchanged. So the
// cost of a schedule can be computed without hardware, and the code can be tested with faults that hardware shows once
// a year.
//
// # Time
//
// The device is a discrete-event simulation with one copy-in engine, one copy-out engine and a compute engine with one
// or more slots. Each engine serves the operation that has been ready longest. Of two that became ready at the same
// instant, it serves the one that was enqueued first. A Model sets how long each operation takes.
//
// The clock starts at zero and moves only while the host waits. Enqueuing takes no time. Stream.Synchronize, Close and
// WaitCompletion move the clock to the instant that they wait for. Event.Done moves it by PollCost, so that polling
// ends. Two runs with the same Options and the same
// sequence of calls give the same times. If one goroutine submits while another waits in WaitCompletion, the sequence
// is not fixed: use Hold to stop the clock while the first one submits.
//
// # Data
//
// Copies move bytes and launches run kernels in Go, at the virtual instant at which the operation ends. A read before
// that instant returns the old contents. Memory is bounds-checked: an operation that accesses memory outside a live
// allocation loses the device, as an illegal address does on a GPU.
package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

// PollCost is the virtual time that one call of Event.Done takes.
const PollCost = time.Microsecond

// Bounds and defaults of Options.
const (
	DefaultMemory = 1 << 30 // bytes; for device memory and for host memory
	MaxTrace      = 1 << 16 // number of spans that Trace keeps

	// maxQueued limits the number of queued operations. Without it, a host that never waits would queue operations
	// until the process runs out of memory.
	maxQueued = 1 << 18
)

// epoch is the wall-clock time at virtual time zero. It is fixed, so that two runs print the same times.
var epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// Options configures the simulated device. With the zero Options, the device has no kernels and no faults, and nothing
// takes any time.
type Options struct {
	// Seed drives Model.Jitter and Fault.Probability, and is part of the device's ID.
	Seed uint64

	// Cost sets how long operations take. With the zero Model, all of them are instantaneous.
	Cost Model

	// Kernels are the device's operators. Their names must differ.
	Kernels []device.HostKernel

	// Faults are the failures to inject. See Fault.
	Faults []Fault

	// MostInPlace is the maximum size of a batch (payloads plus results, in bytes) that kernels ask to have in place
	// (see device.Needs). 0 means that they never do.
	MostInPlace int

	// Memory limits device memory and, separately, the memory that AllocHost returns, in bytes. 0 means DefaultMemory.
	// Memory is real process memory once it is written to.
	Memory int64
}

// Device is a simulated device. AllocHost returns ordinary process memory that copies treat as pinned.
type Device struct {
	*software.Device
	loop *loop
}

// Open creates a device. If options are invalid, it fails with ErrInvalid and an error that names every problem.
func Open(o Options) (*Device, error) {
	id := fmt.Sprintf("sim-%d", o.Seed)
	if err := o.check(); err != nil {
		return nil, device.Errorf("open", id, device.ErrInvalid, "%v", err)
	}
	l := &loop{
		seed:   o.Seed,
		cost:   o.Cost,
		faults: slices.Clone(o.Faults),
	}
	slots := max(o.Cost.ComputeSlots, 1)
	l.engines[CopyInEngine].slots, l.engines[ComputeEngine].slots, l.engines[CopyOutEngine].slots = 1, slots, 1
	l.dev = software.New(software.Config{
		Info: device.Info{
			Kind:   "sim",
			ID:     id,
			Name:   fmt.Sprintf("simulated device (seed %d)", o.Seed),
			Memory: cmp.Or(o.Memory, DefaultMemory),
			Units:  slots,
		},
		Epoch:    epoch,
		HostKind: device.Pinned,
		PoolUnit: software.Alignment,
		Kernels:  withMarkers(o.Kernels, l.faults),
		InPlace:  func(s device.Shape, n device.Needs) bool { return s.Bytes+n.Result <= o.MostInPlace },
		Parallel: serial,
		Strict:   true,
		Inject:   l.inject,
	}, l)
	return &Device{l.dev, l}, nil
}

// check returns all problems of the options, joined.
func (o Options) check() error {
	problems := []error{software.CheckKernels(o.Kernels)}
	for i, f := range o.Faults {
		if err := f.check(); err != nil {
			problems = append(problems, fmt.Errorf("fault %d: %w", i, err))
		}
	}
	return errors.Join(problems...)
}

// serial is the Parallel of all kernels: one call after another, on the goroutine that runs the simulation.
func serial(n int, fn func(i int)) {
	for i := range n {
		fn(i)
	}
}

// Hold keeps WaitCompletion, Event.Synchronize and Event.Done from moving the clock until release is called. So one
// goroutine can submit several operations at one instant although others wait. Hold doesn't affect Stream.Synchronize
// and Close, and Event.Done returns at once. Holds may overlap; a second call of release does nothing.
func (d *Device) Hold() (release func()) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	d.loop.holds++
	return sync.OnceFunc(func() {
		d.Mu.Lock()
		defer d.Mu.Unlock()
		d.loop.holds--
		d.Wake()
	})
}

// Engine is the part of the device that serves an operation.
type Engine uint8

// The engines. Operations of NoEngine only order others.
const (
	NoEngine Engine = iota
	CopyInEngine
	ComputeEngine
	CopyOutEngine
	engineCount
)

// engineOf returns the engine that serves operations of kind k.
func engineOf(k software.Kind) Engine {
	switch k {
	case software.CopyIn:
		return CopyInEngine
	case software.CopyOut:
		return CopyOutEngine
	case software.Fill, software.Launch:
		return ComputeEngine
	}
	return NoEngine
}

// Span is one operation that the device has carried out. Times are on the scale of Device.Now.
type Span struct {
	Seq      uint64 // place in the sequence of enqueueing calls, from 1
	Kind     software.Kind
	Engine   Engine
	Stream   string
	Kernel   string // the operator of a launch; empty for other kinds
	Bytes    int    // bytes moved, filled, or in the rows of a launch; of the allocation for a free
	Enqueued time.Duration
	Start    time.Duration // when an engine started it; for NoEngine, when its stream reached it
	End      time.Duration
}

// record adds an operation that ends now to the trace.
func (l *loop) record(o *task) {
	if len(l.trace) == MaxTrace {
		return
	}
	s := Span{
		Seq: o.Seq, Kind: o.Kind, Engine: engineOf(o.Kind), Stream: o.Stream.Name(),
		Bytes: o.Bytes, Enqueued: o.enqueued, Start: o.start, End: l.now,
	}
	if o.Kernel != nil {
		s.Kernel = o.Kernel.Name()
	}
	l.trace = append(l.trace, s)
}

// Trace returns the first MaxTrace operations that the device has carried out, in the order in which they ended.
func (d *Device) Trace() []Span {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	return slices.Clone(d.loop.trace)
}
