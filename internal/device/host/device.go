// Package host is a device made of CPU cores: the one Millrace runs on where there is no GPU.
//
// It is a real device, not a fake. Each stream is a goroutine that works a bounded queue in order; events,
// copies and allocation obey stream order; operators run in Go on a set of worker goroutines. Device memory
// is apart from host memory, so a copy moves bytes, and addresses are the device's own: one outside a live
// allocation loses the device, as an illegal address loses a GPU. Kernels reach host buffers too, and want every
// batch there.
//
// Built with the tag `invariants`, the device panics at the call that makes a mistake a GPU would punish
// later: see tracker.
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

// DefaultMemory is the bytes of device memory, and of host memory for copies, where Options says nothing.
// It is a cap, not a reservation: memory is taken from the system as it is allocated.
const DefaultMemory = 4 << 30

// maxMemory is the most a limit may be, in bytes: what a process can address.
const maxMemory = 1 << 47

// Options says what Open makes.
type Options struct {
	// Cores is how many goroutines one launch may spread over; 0 means GOMAXPROCS.
	Cores int

	// Kernels are the operators that Device.Kernel finds, each under its own name.
	Kernels []device.HostKernel

	// MemoryLimit caps device memory and HostMemoryLimit what AllocHost gives, in bytes; 0 means
	// DefaultMemory.
	MemoryLimit     int64
	HostMemoryLimit int64
}

// withDefaults fills in what was left out, or says what is wrong.
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

// Device is a device on CPU cores. It implements device.Device, device.Gater and device.Mapper. Info.Memory is the cap on
// device memory, Info.Units the cores of one launch.
type Device struct {
	*software.Base
	epoch       time.Time
	workers     *workers
	parallel    device.Parallel // workers.run
	completions completions
	faulted     chan struct{} // closed once the device is lost
	tracker     tracker       // under the invariants tag only
}

var (
	_ device.Device = (*Device)(nil)
	_ device.Gater  = (*Device)(nil)
	_ device.Mapper = (*Device)(nil)
)

// Open starts a device. Fails with ErrInvalid for options that make no sense.
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
		workers:     startWorkers(o.Cores - 1), // the launching stream is the other one
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

// Close implements device.Device. Gates that nobody opened give way first.
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
