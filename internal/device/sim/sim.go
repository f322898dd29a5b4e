// Package sim is a device on a virtual clock. Scheduling code that drives a GPU runs on it unchanged, so
// that a schedule can be costed without hardware and tested with faults that hardware shows once a year.
//
// # Time
//
// The device is a discrete-event simulation: one copy-in engine, one copy-out engine and a compute engine
// with one or more slots. Each serves the operation that has been ready longest, and of two that became
// ready at one instant the one enqueued first. A Model says how long each operation takes, how much those that
// run at once slow each other, and which latencies come on top.
//
// The clock starts at zero and moves only while the host waits. Enqueueing takes no time.
// Stream.Synchronize, Close and WaitCompletion move it to the instant of what they wait for; Event.Done
// moves it by PollCost, so that polling ends, and Spend by the time the host is said to work. Two runs with the
// same Options and the same sequence of calls give the same times. A host that submits from one goroutine while another waits in WaitCompletion makes
// no fixed sequence by itself: Hold keeps the clock still while it submits.
//
// # Data
//
// Copies move bytes and launches run kernels in Go, at the virtual instant at which the operation ends.
// Who looks too early sees what was there before. Memory is bounds-checked: an operation that touches
// memory outside a live allocation loses the device, as an illegal address does on a GPU.
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
	DefaultMemory     = 1 << 30 // bytes, of device memory and of host memory each
	DefaultTraceLimit = 1 << 16 // spans
	maxComputeSlots   = 1024

	// maxPending bounds the operations queued and the completions not yet fetched, together. A host
	// that never waits would otherwise queue until the process runs out of memory.
	maxPending = 1 << 18
)

// epoch is the wall-clock time of the virtual zero. It is fixed, so that two runs print the same times.
var epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// Options describes the device to simulate. The zero Options is a device without kernels or faults on
// which nothing takes any time.
type Options struct {
	// Seed drives Model.Jitter and Fault.Probability, and is part of the device's ID.
	Seed uint64

	// Cost says how long operations take. The zero Model makes all of them instantaneous.
	Cost Model

	// Kernels are the operators the device knows. Their names must differ.
	Kernels []device.HostKernel

	// Faults are the failures to inject. See Fault.
	Faults []Fault

	// MostInPlace is how many bytes of payloads and results a batch may have for its kernels to want it in
	// place (see device.Needs). 0 means that none is wanted so.
	MostInPlace int

	// Memory is the bytes of device memory, HostMemory those that AllocHost can give. 0 means
	// DefaultMemory. The bytes are real memory of this process once written to.
	Memory     int64
	HostMemory int64

	// TraceLimit is how many spans Trace keeps, the first ones. 0 means DefaultTraceLimit, negative none.
	TraceLimit int
}

// Device is a simulated device. It has no goroutines of its own: whoever waits runs the simulation.
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
	completions []uint64 // tokens that came and were not fetched, in order
	holds       int      // calls of Hold not released
	trace       trace
	offsets     []uint32 // decoded offsets table of the launch that runs
}

var (
	_ device.Device = (*Device)(nil)
	_ device.Gater  = (*Device)(nil)
	_ device.Mapper = (*Device)(nil)
)

// Open makes a device. It fails with ErrInvalid when the options make no sense, naming every problem.
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

// check returns every problem of the options, joined.
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

// Now implements device.Device: the virtual time. Reading it does not move it.
func (d *Device) Now() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

// lose makes the device lost by a loss of that kind: what is queued never happens, and every waiter hears of it. The
// lock is held.
func (d *Device) lose(kind error, call, format string, args ...any) {
	if !d.Lose(d.Errorf(call, kind, format, args...)) {
		return
	}
	d.abandon()
	d.wake()
}

// wake tells every goroutine in block that something has changed. The lock is held.
func (d *Device) wake() {
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// Close implements device.Device. A gate that still holds queued work up gives way. Completions not yet
// fetched are dropped. On a lost device nothing could be freed, so Close reports the loss, not leaks.
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
