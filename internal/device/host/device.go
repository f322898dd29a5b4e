// Package host implements a device on CPU cores. Millrace uses it where there is no GPU.
//
// It is a real device, not a fake. Each stream is a goroutine that runs the operations of a bounded queue in order.
// Events, copies and allocations obey stream order, and operators run in Go on a set of worker goroutines. Device
// memory is separate from host memory, so a copy moves bytes. The device has its own addresses: an address outside a
// live allocation loses the device, as an illegal address loses a GPU. Kernels can access host buffers too, and ask for
// every batch in place there.
//
// Built with the tag `invariants`, the device panics at a call whose mistake a GPU would punish later: see tracker.
package host

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

// DefaultMemory is the default for Options.MemoryLimit and Options.HostMemoryLimit, in bytes. It is a limit, not a
// reservation: the system provides memory as it is allocated.
const DefaultMemory = 4 << 30

// maxMemory is the maximum of a limit, in bytes: the size of a process's address space.
const maxMemory = 1 << 47

// Options configures a device.
type Options struct {
	// Cores is the maximum number of goroutines that one launch uses; 0 means GOMAXPROCS.
	Cores int

	// Kernels are the operators that Device.Kernel finds, by their names.
	Kernels []device.HostKernel

	// MemoryLimit limits device memory, and HostMemoryLimit limits the memory that AllocHost returns, in bytes; 0 means
	// DefaultMemory.
	MemoryLimit     int64
	HostMemoryLimit int64
}

// withDefaults replaces zero values with defaults, or returns an error that describes an invalid option.
func (o Options) withDefaults() (Options, error) {
	if o.Cores < 0 || o.MemoryLimit < 0 || o.HostMemoryLimit < 0 {
		return o, device.Errorf("open", "host", device.ErrInvalid,
			"cores %d, memory limit %d and host memory limit %d must not be negative; 0 means the default",
			o.Cores, o.MemoryLimit, o.HostMemoryLimit)
	}
	if o.MemoryLimit > maxMemory || o.HostMemoryLimit > maxMemory {
		return o, device.Errorf("open", "host", device.ErrInvalid,
			"memory limit %d and host memory limit %d must be at most %d bytes", o.MemoryLimit, o.HostMemoryLimit, int64(maxMemory))
	}
	o.Cores = cmp.Or(o.Cores, runtime.GOMAXPROCS(0))
	o.MemoryLimit, o.HostMemoryLimit = cmp.Or(o.MemoryLimit, DefaultMemory), cmp.Or(o.HostMemoryLimit, DefaultMemory)
	return o, nil
}

// Device is a device on CPU cores. It implements device.Device, device.Gater and device.Mapper. Info.Memory is the
// limit of device memory, and Info.Units is the number of cores of one launch.
type Device struct {
	*software.Base
	epoch       time.Time
	workers     *workers
	parallel    device.Parallel // workers.run
	completions completions
	faulted     chan struct{} // closed once the device is lost
	tracker     tracker       // with the invariants tag only
}

var (
	_ device.Device = (*Device)(nil)
	_ device.Gater  = (*Device)(nil)
	_ device.Mapper = (*Device)(nil)
)

// Open starts a device. It fails with ErrInvalid for invalid options.
func Open(o Options) (*Device, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := software.CheckKernels(o.Kernels); err != nil {
		return nil, device.Errorf("open", "host", device.ErrInvalid, "%v", err)
	}
	var fresh byte
	if device.Invariants {
		fresh = software.Poison
	}
	d := &Device{
		Base: software.NewBase(software.Config{
			Info: device.Info{
				Kind: "host", ID: "host", Name: fmt.Sprintf("host (%d cores)", o.Cores),
				Memory: o.MemoryLimit, Units: o.Cores,
			},
			HostMemory: o.HostMemoryLimit, Fresh: fresh, Kernels: o.Kernels, InPlace: wantInPlace,
		}),
		epoch:       time.Now(),
		workers:     startWorkers(o.Cores - 1), // the launching stream is one more core
		completions: newCompletions(),
		faulted:     make(chan struct{}),
	}
	d.parallel = d.workers.run
	return d, nil
}

// Now implements device.Device, on the system's monotonic clock.
func (d *Device) Now() time.Duration { return time.Since(d.epoch) }

// Epoch implements device.Device.
func (d *Device) Epoch() time.Time { return d.epoch }

// Close implements device.Device. It opens all gates first.
func (d *Device) Close() error {
	if !d.Shut() {
		return nil
	}
	for _, s := range d.openStreams() {
		s.stop()
	}
	d.workers.stop()
	leaks := d.FreeAll()
	d.completions.close()
	return errors.Join(d.Err(), leaks)
}
