package host

import (
	"runtime"
	"sync"
	"sync/atomic"

	"millrace/internal/device"
)

// residentLooks is how often an idle resident looks for a batch before it parks. Each look lets other goroutines run,
// and a parked one costs whoever posts next the time to wake it.
const residentLooks = 1000

// resident is a goroutine that takes batches from a mailbox. It implements device.Resident.
type resident struct {
	dev     *Device
	kernel  *kernel
	most    device.Shape
	scratch device.Memory // no bytes where the kernel needs none
	uses    stream        // stands for the resident in the tracker; no work is put on it

	mu     sync.Mutex // held by the methods
	busy   bool       // a batch was posted, and Done has not said true of it
	closed bool

	// What the methods and the goroutine share. batch is written before posted and read after it.
	batch    posted
	posted   atomic.Uint64 // number of the last batch that was posted
	finished atomic.Uint64 // and of the last one that is done
	stopping atomic.Bool
	parked   atomic.Bool
	wake     chan struct{} // holds one
	exited   chan struct{}
	offsets  []uint32 // the goroutine's
}

// posted is a batch in the mailbox.
type posted struct {
	rows, table, scratch, result []byte
}

// Resident implements device.Residenter with a goroutine. It looks for batches for a short while and then parks,
// so that an idle one costs no core.
func (d *Device) Resident(k device.Kernel, most device.Shape) (device.Resident, error) {
	const call = "resident"
	own, ok := k.(*kernel)
	if !ok || own == nil || own.dev != d {
		return nil, d.errorf(call, device.ErrInvalid, "the kernel is not one of this device")
	}
	if err := device.CheckResident(most); err != nil {
		return nil, d.errorf(call, device.ErrInvalid, "%s: %v", own.name, err)
	}
	r := &resident{
		dev: d, kernel: own, most: most,
		wake: make(chan struct{}, 1), exited: make(chan struct{}), offsets: make([]uint32, 0, most.Rows+1),
	}
	r.uses.dev, r.uses.name = d, "of resident "+own.name
	if !own.retain() {
		return nil, d.errorf(call, device.ErrClosed, "kernel %s was closed", own.name)
	}
	if err := r.start(call); err != nil {
		own.release()
		return nil, err
	}
	return r, nil
}

// start takes scratch and starts the goroutine.
func (r *resident) start(call string) error {
	d := r.dev
	if err := d.usable(call); err != nil {
		return err
	}
	if bytes := r.kernel.bound.Needs(r.most).Scratch; bytes > 0 {
		var err error
		if r.scratch, err = d.memory.Alloc(bytes); err != nil {
			return err
		}
	}
	if err := d.register(call, r); err != nil {
		r.giveScratch()
		return err
	}
	go r.serve()
	return nil
}

func (r *resident) giveScratch() {
	if r.scratch.Bytes > 0 {
		_ = r.dev.memory.Free(r.scratch)
	}
}

func (r *resident) leak() string { return "resident " + r.kernel.name }

// Post implements device.Resident.
func (r *resident) Post(shape device.Shape, region device.HostBuffer, table int, result device.HostBuffer) error {
	const call = "post"
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(call); err != nil {
		return err
	}
	if r.busy {
		return r.dev.errorf(call, device.ErrInvalid, "%s: a batch is posted already: wait until Done says true of it", r.kernel.name)
	}
	needs := r.kernel.bound.Needs(shape)
	if err := device.CheckPost(shape, r.most, needs, region, table, result); err != nil {
		return r.dev.errorf(call, device.ErrInvalid, "%s: %v", r.kernel.name, err)
	}
	var scratch []byte
	if needs.Scratch > 0 {
		scratch, _ = r.dev.memory.Bytes(r.scratch.Slice(0, needs.Scratch))
	}
	r.batch = posted{
		rows: region.Raw()[:shape.Bytes], table: region.Raw()[table:][:4*(shape.Rows+1)],
		scratch: scratch, result: result.Raw()[:needs.Result],
	}
	if device.Invariants {
		r.track(region, result)
	}
	r.busy = true
	r.posted.Add(1)
	r.rouse()
	return nil
}

// track tells the tracker what the batch uses until it is finished.
func (r *resident) track(region, result device.HostBuffer) {
	r.dev.tracker.admit(mark{&r.uses, r.posted.Load() + 1}, &op{kind: opPost, host: region.Raw(), result: result.Raw()})
}

// usable is nil while the resident takes calls. The caller holds mu.
func (r *resident) usable(call string) error {
	if err := r.dev.usable(call); err != nil {
		return err
	}
	if r.closed {
		return r.dev.errorf(call, device.ErrClosed, "resident %s was closed", r.kernel.name)
	}
	return nil
}

// Done implements device.Resident.
func (r *resident) Done() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable("done"); err != nil {
		return false, err
	}
	if r.busy && r.finished.Load() == r.posted.Load() {
		r.busy = false
	}
	if r.busy {
		runtime.Gosched() // who spins on Done may be on the only core there is
	}
	return !r.busy, nil
}

// Close implements device.Resident.
func (r *resident) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.dev.closing.Load() {
		return nil // the device's Close has stopped it
	}
	r.closed = true
	r.stop()
	r.dev.unregister(r)
	r.kernel.release()
	return r.dev.Err()
}

// stop lets the goroutine finish what is posted and waits for it to return.
func (r *resident) stop() {
	r.stopping.Store(true)
	r.rouse()
	<-r.exited
	r.giveScratch()
}

// rouse wakes the goroutine if it is parked or about to park.
func (r *resident) rouse() {
	if r.parked.CompareAndSwap(true, false) {
		r.wake <- struct{}{}
	}
}

// serve is the goroutine.
func (r *resident) serve() {
	defer close(r.exited)
	for served := uint64(0); r.await(served); {
		served++
		if !r.dev.lost() {
			r.run()
		}
		r.uses.done.Store(served)
		r.finished.Store(served)
	}
}

// await returns true once there is a batch behind number served, and false if there is none and it must stop.
func (r *resident) await(served uint64) bool {
	for looks := 0; ; looks++ {
		switch {
		case r.posted.Load() != served:
			return true
		case r.stopping.Load():
			// A batch posted before the stop was seen is finished first.
			return r.posted.Load() != served
		case looks < residentLooks:
			runtime.Gosched()
			continue
		}
		looks = 0
		r.parked.Store(true)
		if (r.posted.Load() != served || r.stopping.Load()) && r.parked.CompareAndSwap(true, false) {
			continue
		}
		<-r.wake
	}
}

// run computes the batch. A kernel that fails loses the device, as in a launch.
func (r *resident) run() {
	b := &r.batch
	offsets, err := readOffsets(r.offsets[:0], b.table, len(b.rows))
	if err == nil {
		err = r.dev.runKernel(r.kernel, b.rows, offsets, b.scratch, b.result)
	}
	if err != nil {
		r.dev.fault(r.dev.errorf("post", device.ErrKernelFault, "resident %s: %v", r.kernel.name, err))
	}
}
