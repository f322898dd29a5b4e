// Package software implements a device in this process. It provides streams, events, completions, memory and pools, and
// runs operators written in Go. A Clock decides when operations run. Package host has a real-time clock and one
// goroutine per stream. Package sim has a virtual-time clock.
//
// Device memory is separate from host memory, so a copy moves bytes. The device has its own addresses. An operation at
// an address outside every live allocation makes the device report a loss, as a GPU does for an illegal address.
// Kernels can also access host buffers. With the build tag `invariants`, a device panics at once on errors that a GPU
// would report later (see guard.go).
//
// One lock guards all state of a device. It is not held while operations move bytes or run kernels in real time. Read
// Device first, then op.go (operations and Clock), then stream.go.
package software

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/device"
)

// Options configures a device. Check the kernels with CheckKernels first.
type Options struct {
	Info     device.Info // Info.Memory limits device memory and, separately, host memory
	Epoch    time.Time
	HostKind device.HostKind // kind of memory that AllocHost reports
	PoolUnit int             // unit to which pool limits are rounded up, in bytes; a power of two
	Kernels  []device.HostKernel
	InPlace  func(device.Shape, device.Needs) bool // whether kernels set Needs.InPlace for such a batch
	Parallel device.Parallel                       // runs the parts of a kernel

	// Strict also makes the device report a loss if an operation uses pool memory after it was freed. It costs one Go
	// allocation per allocation from a pool. The invariants tag implies it.
	Strict bool

	// Inject returns the error to inject into a valid call, or nil. A nil Inject injects no errors. The calls are
	// "alloc host", "pool alloc" and "launch".
	Inject func(call string) error
}

// Device implements device.Device, device.Gater and device.Mapper. Its methods are safe for concurrent use, except the
// methods for the Clock.
type Device struct {
	o       Options
	clock   Clock
	kernels map[string]device.HostKernel

	lost   atomic.Pointer[device.Error] // the first loss
	closed atomic.Bool

	// Mu guards everything below, and all streams, events and pools. The Clock may use it.
	Mu          sync.Mutex
	seq         uint64 // number of the last operation enqueued
	spare       *Op    // list of operations to reuse
	streams     []*Stream
	open        map[object]struct{} // objects that the caller must close
	memory      space
	buffers     space
	pools       []*Pool // includes closed pools until their memory is released
	completions completions
}

var (
	_ device.Device = (*Device)(nil)
	_ device.Gater  = (*Device)(nil)
	_ device.Mapper = (*Device)(nil)
)

// object is an object that the caller must close.
type object interface {
	// leak describes the object in a LeakError.
	leak() string
}

// New creates a device. The clock runs the device's operations.
func New(o Options, clock Clock) *Device {
	d := &Device{
		o:           o,
		clock:       clock,
		kernels:     make(map[string]device.HostKernel, len(o.Kernels)),
		open:        make(map[object]struct{}),
		memory:      space{limit: o.Info.Memory, unit: Alignment, next: gap},
		buffers:     space{limit: o.Info.Memory, unit: 1, next: mappedBit},
		completions: completions{changed: make(chan struct{}, 1)},
	}
	d.o.Strict = o.Strict || device.Invariants
	if device.Invariants {
		d.memory.fresh = poison
	}
	for _, k := range o.Kernels {
		d.kernels[k.Name()] = k
	}
	return d
}

// Info implements device.Device.
func (d *Device) Info() device.Info { return d.o.Info }

// Epoch implements device.Device.
func (d *Device) Epoch() time.Time { return d.o.Epoch }

// Now implements device.Device. It doesn't move a virtual clock.
func (d *Device) Now() time.Duration {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	return d.clock.Now()
}

// Enqueue implements device.Device.
func (d *Device) Enqueue(commands []device.Command) error { return device.EnqueueEach(commands) }

// Err implements device.Device.
func (d *Device) Err() error {
	if lost := d.lost.Load(); lost != nil {
		return lost
	}
	return nil
}

// Check implements device.Device. It runs no operation, because host memory and cores need no probe. It only returns a
// known loss.
func (d *Device) Check(ctx context.Context) error {
	if err := d.checkUsable("check"); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return d.errorf("check", device.ErrNotReady, "no answer in time: %v", ctx.Err())
	}
	return nil
}

// checkUsable returns nil if the device accepts calls. It needs no lock.
func (d *Device) checkUsable(call string) error {
	if err := d.Err(); err != nil {
		return err
	}
	if d.closed.Load() {
		return d.errorf(call, device.ErrClosed, "the device was closed")
	}
	return nil
}

// usableObject returns nil if the device accepts calls and object o of the device is not closed.
func (d *Device) usableObject(call string, o object, closed bool) error {
	if err := d.checkUsable(call); err != nil {
		return err
	}
	if closed {
		return d.errorf(call, device.ErrClosed, "closed: %s", o.leak())
	}
	return nil
}

func (d *Device) errorf(call string, kind error, format string, args ...any) *device.Error {
	return device.Errorf(call, d.o.Info.ID, kind, format, args...)
}

// inject returns the result of Options.Inject, or nil if Inject is nil. The caller holds the lock.
func (d *Device) inject(call string) error {
	if d.o.Inject == nil {
		return nil
	}
	return d.o.Inject(call)
}

// misuse returns an ErrInvalid for the free of memory that is not allocated. With the invariants tag it panics, because
// only a bug in the caller can be the cause.
func (d *Device) misuse(call, format string, args ...any) error {
	err := d.errorf(call, device.ErrInvalid, format, args...)
	if device.Invariants {
		panic(err)
	}
	return err
}

// add registers an object that the caller must close. The caller holds the lock.
func (d *Device) add(call string, o object) error {
	if err := d.checkUsable(call); err != nil {
		return err
	}
	d.open[o] = struct{}{}
	return nil
}

// Lost reports whether the device is lost. It needs no lock.
func (d *Device) Lost() bool { return d.lost.Load() != nil }

// Lose marks the device as permanently lost, because operation o failed. Queued operations never run, and all waits
// end. Later losses are ignored. Only the Clock may call Lose, with the lock held.
func (d *Device) Lose(o *Op, why error) {
	loss := d.errorf(o.Kind.String(), device.ErrLost, "%v (stream %s)", why, o.Stream.name)
	if o.Kind == Launch { // only a loss by a kernel can be due to a payload
		loss = d.errorf("launch", device.ErrKernelFault, "kernel %s on stream %s: %v", o.Kernel.name, o.Stream.name, why)
		loss.Operator = o.Kernel.name
	}
	if !d.lost.CompareAndSwap(nil, loss) {
		return
	}
	for _, s := range d.streams {
		s.head, s.tail, s.queued = nil, nil, 0
	}
	d.clock.Lost()
	d.Wake()
}

// Wake makes all calls that wait for the device check the state again. Only the Clock may call Wake, with the lock
// held.
func (d *Device) Wake() {
	for _, s := range d.streams {
		s.changed.Broadcast()
	}
	d.completions.signal()
}

// Close implements device.Device. If a gate delays queued work, Close waits until the gate opens by itself. Close drops
// completions that were not fetched. On a lost device nothing can be freed, so Close returns the loss and no leaks.
func (d *Device) Close() error {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if d.closed.Swap(true) {
		return nil
	}
	for _, s := range d.streams {
		s.closed = true
		s.changed.Broadcast() // also wakes calls that wait for space in the queue
	}
	for _, s := range slices.Clone(d.streams) {
		d.await(mark{s, s.last}, ForStream)
	}
	d.Mu.Unlock()
	d.clock.Stop()
	d.Mu.Lock()
	d.completions.drop()
	d.Wake()
	leaks := d.freeAll()
	d.streams = nil
	return errors.Join(d.Err(), leaks)
}

// freeAll frees all memory. It returns an error that names the objects that the caller had not closed or freed.
func (d *Device) freeAll() error {
	if d.Lost() {
		return nil
	}
	leaks := append(d.memory.clear("memory"), d.buffers.clear("host buffer")...)
	for o := range d.open {
		leaks = append(leaks, o.leak())
	}
	if len(leaks) == 0 {
		return nil
	}
	slices.Sort(leaks)
	return &device.LeakError{Device: d.o.Info.ID, Open: leaks}
}

// CheckKernels returns an error if two kernels have the same name.
func CheckKernels(kernels []device.HostKernel) error {
	names := make(map[string]bool, len(kernels))
	for _, k := range kernels {
		if names[k.Name()] {
			return fmt.Errorf("two kernels are called %q", k.Name())
		}
		names[k.Name()] = true
	}
	return nil
}
