// Package sim implements a device on a virtual clock. Scheduling code for a GPU runs on it unchanged. Use it to compute
// the cost of a schedule without hardware, and to test with faults that are rare on hardware.
//
// # Time
//
// The device is a discrete-event simulation with one copy-in engine, one copy-out engine and a compute engine with one
// or more slots. Each engine serves the operation that has been ready longest. If two operations became ready at the
// same instant, the engine serves the operation that was enqueued first. A Model sets the duration of each operation.
//
// The clock starts at zero and moves only while the host waits. Enqueuing takes no time. Stream.Synchronize, Close and
// WaitCompletion move the clock to the instant that they wait for. Event.Done moves it by PollCost, so polling makes
// progress. Two runs with the same Options and the same sequence of calls have the same times. If one goroutine submits
// while another waits in WaitCompletion, the sequence is not fixed. Use Hold to stop the clock while the first
// goroutine submits.
//
// # Data
//
// Copies move bytes and launches run kernels in Go, at the virtual instant at which the operation ends. A read before
// that instant returns the old contents. Memory is bounds-checked. If an operation accesses memory outside a live
// allocation, the device is lost, as a GPU is after an illegal address.
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
	DefaultMemory = 1 << 30 // bytes; applies to device memory and to host memory
	MaxTrace      = 1 << 16 // number of spans that Trace keeps

	// maxQueued limits the number of queued operations. Without this limit, a host that never waits would queue
	// operations until the process runs out of memory.
	maxQueued = 1 << 18
)

// epoch is the wall-clock time at virtual time zero. It is fixed, so that two runs print the same times.
var epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// Options configures the simulated device. With the zero Options, the device has no kernels and no faults, and
// operations take no time.
type Options struct {
	// Seed is the seed of Model.Jitter and Fault.Probability, and part of the device's ID.
	Seed uint64

	// Cost sets the durations of operations. With the zero Model, operations take no time.
	Cost Model

	// Kernels are the device's operators. Their names must differ.
	Kernels []device.HostKernel

	// Faults are the failures to inject. See Fault.
	Faults []Fault

	// MaxInPlace is the maximum size of a batch for which kernels set device.Needs.InPlace. It is the size of payloads
	// plus results, in bytes. With 0, kernels never set InPlace.
	MaxInPlace int

	// Memory limits device memory and, separately, the memory that AllocHost returns, in bytes. 0 means DefaultMemory.
	// Memory that is written to is real process memory.
	Memory int64
}

// Device is a simulated device. AllocHost returns ordinary process memory, which copies treat as pinned.
type Device struct {
	*software.Device
	loop *loop
}

// Open creates a device. It fails with ErrInvalid if options are invalid. The error lists all problems.
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
	l.dev = software.New(software.Options{
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
		InPlace:  func(s device.Shape, n device.Needs) bool { return s.Bytes+n.Result <= o.MaxInPlace },
		Parallel: serial,
		Strict:   true,
		Inject:   l.inject,
	}, l)
	return &Device{l.dev, l}, nil
}

// check returns an error that joins all problems of the options.
func (o Options) check() error {
	problems := []error{software.CheckKernels(o.Kernels)}
	for i, f := range o.Faults {
		if err := f.check(); err != nil {
			problems = append(problems, fmt.Errorf("fault %d: %w", i, err))
		}
	}
	return errors.Join(problems...)
}

// serial is the Parallel of all kernels. It makes one call after another, on the goroutine that runs the simulation.
func serial(n int, fn func(i int)) {
	for i := range n {
		fn(i)
	}
}

// Hold keeps WaitCompletion, Event.Synchronize and Event.Done from moving the clock until release is called. It lets
// one goroutine submit several operations at one instant while other goroutines wait. Hold doesn't affect
// Stream.Synchronize and Close, and Event.Done returns at once. Holds may overlap. A second call of release has no
// effect.
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

// The engines. Operations of NoEngine only define an order.
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
	Seq      uint64 // position in the sequence of enqueuing calls, from 1
	Kind     software.Kind
	Engine   Engine
	Stream   string
	Kernel   string // operator of a launch; empty for other kinds
	Bytes    int    // bytes moved, bytes filled, bytes of a launch's rows, or bytes of a freed allocation
	Enqueued time.Duration
	Start    time.Duration // time at which its engine started it or, for NoEngine, its stream reached it
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
