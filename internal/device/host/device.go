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
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/memory"
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
	if o.Cores == 0 {
		o.Cores = runtime.GOMAXPROCS(0)
	}
	if o.MemoryLimit == 0 {
		o.MemoryLimit = DefaultMemory
	}
	if o.HostMemoryLimit == 0 {
		o.HostMemoryLimit = DefaultMemory
	}
	return o, nil
}

// Device is a device on CPU cores. It implements device.Device, device.Gater and device.Mapper.
type Device struct {
	info        device.Info
	epoch       time.Time
	kernels     map[string]device.HostKernel
	workers     *workers
	parallel    device.Parallel // workers.run
	memory      *memory.Space
	buffers     *memory.HostBuffers
	completions completions
	loss        loss
	tracker     tracker // under the invariants tag only

	closing atomic.Bool
	mu      sync.Mutex
	open    map[object]struct{} // what the caller has not closed; its streams are told of a loss
	pools   []*pool             // closed ones too, until their memory has gone back
}

var (
	_ device.Device = (*Device)(nil)
	_ device.Gater  = (*Device)(nil)
	_ device.Mapper = (*Device)(nil)
)

// object is what a caller makes and must close.
type object interface {
	// leak describes the object in a LeakError.
	leak() string
}

// Open starts a device. Fails with ErrInvalid for options that make no sense.
func Open(o Options) (*Device, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	var fresh byte
	if device.Invariants {
		fresh = memory.Poison
	}
	d := &Device{
		info: device.Info{
			Kind: "host", ID: "host", Name: fmt.Sprintf("host (%d cores)", o.Cores),
			Memory: o.MemoryLimit, Units: o.Cores,
		},
		epoch:       time.Now(),
		kernels:     make(map[string]device.HostKernel, len(o.Kernels)),
		memory:      memory.NewSpace("host", o.MemoryLimit, fresh),
		buffers:     memory.NewHostBuffers("host", o.HostMemoryLimit),
		completions: newCompletions(),
		loss:        loss{signal: make(chan struct{})},
		open:        make(map[object]struct{}),
	}
	for _, k := range o.Kernels {
		if _, twice := d.kernels[k.Name()]; twice {
			return nil, d.errorf("open", device.ErrInvalid, "two kernels are named %q", k.Name())
		}
		d.kernels[k.Name()] = k
	}
	d.workers = startWorkers(o.Cores - 1) // the launching stream is the other one
	d.parallel = d.workers.run
	return d, nil
}

// Info implements device.Device. Memory is the cap on device memory, Units the cores of one launch.
func (d *Device) Info() device.Info { return d.info }

// Now implements device.Device, on the system's monotonic clock.
func (d *Device) Now() time.Duration { return time.Since(d.epoch) }

// Epoch implements device.Device.
func (d *Device) Epoch() time.Time { return d.epoch }

// Close implements device.Device. Gates that nobody opened give way first.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closing.Swap(true) {
		d.mu.Unlock()
		return nil
	}
	var leaks []string
	var streams []*stream
	for o := range d.open {
		leaks = append(leaks, o.leak())
		if s, ok := o.(*stream); ok {
			streams = append(streams, s)
		}
	}
	d.mu.Unlock()

	for _, s := range streams {
		s.stop()
	}
	d.workers.stop()
	leaks = append(leaks, d.memory.Leaks()...)
	leaks = append(leaks, d.buffers.Leaks()...)
	d.memory.Clear()
	d.buffers.Clear()
	d.completions.close()

	err := d.Err()
	if len(leaks) > 0 {
		slices.Sort(leaks)
		err = errors.Join(err, &device.LeakError{Device: d.info.ID, Open: leaks})
	}
	return err
}

// register adds an object the caller has to close.
func (d *Device) register(call string, o object) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(call); err != nil {
		return err
	}
	d.open[o] = struct{}{}
	if p, ok := o.(*pool); ok {
		d.pools = append(d.pools, p)
	}
	return nil
}

// unregister takes an object out that the caller has closed.
func (d *Device) unregister(o object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, o)
}
