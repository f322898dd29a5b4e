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
	DefaultMemory     = 1 << 30 // bytes; for device memory and for host memory
	DefaultTraceLimit = 1 << 16 // spans
	maxComputeSlots   = 1024

	// maxPending limits the sum of queued operations and completions not yet fetched. Without it, a host that never
	// waits would queue operations until the process runs out of memory.
	maxPending = 1 << 18
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

	// Memory limits device memory and HostMemory limits the memory that AllocHost returns, in bytes. 0 means
	// DefaultMemory. Memory is real process memory once it is written to.
	Memory     int64
	HostMemory int64

	// TraceLimit is the number of spans that Trace keeps; later spans are dropped. 0 means DefaultTraceLimit, and a
	// negative value means none.
	TraceLimit int
}

// Device is a simulated device. It has no goroutines: the caller that waits runs the simulation.
type Device struct {
	*software.Base
	seed   uint64
	cost   Model
	faults []Fault

	mu      sync.Mutex
	changed chan struct{} // closed at the next change of state; nil while nobody waits for one

	loop
	lives
	counts      counts
	completions []uint64 // tokens that arrived and were not fetched, in order
	holds       int      // number of calls of Hold that were not released
	trace       trace
	offsets     []uint32 // decoded offsets table of the running launch
}

var (
	_ device.Device = (*Device)(nil)
	_ device.Gater  = (*Device)(nil)
	_ device.Mapper = (*Device)(nil)
)

// Open creates a device. If options are invalid, it fails with ErrInvalid and an error that names every problem.
func Open(o Options) (*Device, error) {
	id := fmt.Sprintf("sim-%d", o.Seed)
	if err := o.check(); err != nil {
		return nil, device.Errorf("open", id, device.ErrInvalid, "%v", err)
	}
	slots := max(o.Cost.ComputeSlots, 1)
	return &Device{
		Base: software.NewBase(software.Config{
			Info: device.Info{
				Kind:   "sim",
				ID:     id,
				Name:   fmt.Sprintf("simulated device (seed %d)", o.Seed),
				Memory: cmp.Or(o.Memory, DefaultMemory),
				Units:  slots,
			},
			HostMemory: cmp.Or(o.HostMemory, DefaultMemory),
			Kernels:    o.Kernels,
			InPlace:    func(s device.Shape, n device.Needs) bool { return s.Bytes+n.Result <= o.MostInPlace },
		}),
		seed:   o.Seed,
		cost:   o.Cost,
		faults: slices.Clone(o.Faults),
		loop:   newLoop(slots),
		lives:  make(lives),
		trace:  trace{limit: max(cmp.Or(o.TraceLimit, DefaultTraceLimit), 0)},
	}, nil
}

// check returns all problems of the options, joined.
func (o Options) check() error {
	problems := []error{o.Cost.check(), software.CheckKernels(o.Kernels)}
	if o.Memory < 0 || o.HostMemory < 0 {
		problems = append(problems, errors.New("Memory and HostMemory must not be negative"))
	}
	for i, f := range o.Faults {
		if err := f.check(); err != nil {
			problems = append(problems, fmt.Errorf("fault %d (%v): %w", i, f.Kind, err))
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

// Epoch implements device.Device. It is the same in every run.
func (d *Device) Epoch() time.Time { return epoch }

// Now implements device.Device. It returns the virtual time and doesn't move the clock.
func (d *Device) Now() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

// lose makes the device lost because of an operation. Queued operations never run, and all waits end. The caller holds
// the lock.
func (d *Device) lose(o *op, why error) {
	loss := d.Errorf(o.String(), o.lossKind(), "%v", why)
	loss.Operator = o.name
	if !d.Lose(loss) {
		return
	}
	d.abandon()
	d.wake()
}

// wake tells all goroutines in block that the state has changed. The caller holds the lock.
func (d *Device) wake() {
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// Close implements device.Device. A gate that still delays queued work gives way. Completions not yet fetched are
// dropped. On a lost device nothing can be freed, so Close returns the loss and no leaks.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Closed() {
		return nil
	}
	d.drive(func() bool { return d.queued == 0 })
	d.Shut()
	for _, s := range d.streams {
		s.closed = true
	}
	d.streams, d.completions = nil, nil
	leaks := d.FreeAll()
	clear(d.lives)
	d.wake()
	if d.Lost() {
		return d.Err()
	}
	return leaks
}
