package software

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"millrace/internal/device"
)

// Base is the part of a device that doesn't depend on when work runs: its description, its state, its memory, its
// operators and the caller's open objects. A device embeds it. Methods are safe for concurrent use and take no lock of
// the device.
type Base struct {
	Space   *Space
	Buffers *HostBuffers

	info    device.Info
	kernels map[string]device.HostKernel
	inPlace func(device.Shape, device.Needs) bool // whether kernels ask for such a batch in place

	lost   atomic.Pointer[device.Error] // the first loss
	closed atomic.Bool

	mu   sync.Mutex
	open map[Object]struct{}
}

// Object is an object that the caller must close.
type Object interface {
	// Leak describes the object in a LeakError.
	Leak() string
}

// Config configures a Base.
type Config struct {
	Info       device.Info // Info.Memory limits device memory
	HostMemory int64       // limits host memory, in bytes
	Fresh      byte        // value of memory that was never used; only 0 costs nothing
	Kernels    []device.HostKernel
	InPlace    func(device.Shape, device.Needs) bool
}

// NewBase creates a Base. Check the kernels with CheckKernels first.
func NewBase(c Config) *Base {
	b := &Base{
		Space:   NewSpace(c.Info.ID, c.Info.Memory, c.Fresh),
		Buffers: NewHostBuffers(c.Info.ID, c.HostMemory),
		info:    c.Info,
		kernels: make(map[string]device.HostKernel, len(c.Kernels)),
		inPlace: c.InPlace,
		open:    make(map[Object]struct{}),
	}
	b.Space.usable, b.Buffers.space.usable = b.Usable, b.Usable
	for _, k := range c.Kernels {
		b.kernels[k.Name()] = k
	}
	return b
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

// Info implements device.Device.
func (b *Base) Info() device.Info { return b.info }

// Enqueue implements device.Device.
func (b *Base) Enqueue(commands []device.Command) error { return device.EnqueueEach(commands) }

// Err implements device.Device.
func (b *Base) Err() error {
	if lost := b.lost.Load(); lost != nil {
		return lost
	}
	return nil
}

// Check implements device.Device. This machine's memory and cores need no probe, so it only returns a known loss.
func (b *Base) Check(ctx context.Context) error {
	if err := b.Usable("check"); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return b.Errorf("check", device.ErrNotReady, "no answer in time: %v", ctx.Err())
	}
	return nil
}

// Map implements device.Mapper.
func (b *Base) Map(buffer device.HostBuffer) (device.Memory, error) { return b.Buffers.Map(buffer) }

// Usable returns nil if the device accepts calls.
func (b *Base) Usable(call string) error {
	if err := b.Err(); err != nil {
		return err
	}
	if b.closed.Load() {
		return b.Errorf(call, device.ErrClosed, "the device was closed")
	}
	return nil
}

// Lose makes the device lost permanently. It returns false if the device was lost before.
func (b *Base) Lose(loss *device.Error) (first bool) { return b.lost.CompareAndSwap(nil, loss) }

// Lost reports whether the device is lost.
func (b *Base) Lost() bool { return b.lost.Load() != nil }

// Shut makes the device refuse calls. It returns false if the device was closed before.
func (b *Base) Shut() (first bool) { return !b.closed.Swap(true) }

// Closed reports whether Shut was called.
func (b *Base) Closed() bool { return b.closed.Load() }

// Errorf returns a device error.
func (b *Base) Errorf(call string, kind error, format string, args ...any) *device.Error {
	return device.Errorf(call, b.info.ID, kind, format, args...)
}

// Add registers an object that the caller must close. It fails after Shut. All objects added before Shut are in Open.
func (b *Base) Add(call string, o Object) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.Usable(call); err != nil {
		return err
	}
	b.open[o] = struct{}{}
	return nil
}

// Remove removes an object that the caller has closed.
func (b *Base) Remove(o Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, o)
}

// Open returns the objects that the caller has not closed, in no particular order.
func (b *Base) Open() (all []Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for o := range b.open {
		all = append(all, o)
	}
	return all
}

// FreeAll frees all memory, and returns an error that names the objects that the caller had not closed or freed.
func (b *Base) FreeAll() error {
	var leaks []string
	for _, o := range b.Open() {
		leaks = append(leaks, o.Leak())
	}
	leaks = append(leaks, b.Space.clear("memory")...)
	leaks = append(leaks, b.Buffers.space.clear("host buffer")...)
	if len(leaks) == 0 {
		return nil
	}
	slices.Sort(leaks)
	return &device.LeakError{Device: b.info.ID, Open: leaks}
}
