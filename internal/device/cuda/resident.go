//go:build cgo

package cuda

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"millrace/internal/device"
)

// residentTick is how long a batch may be posted before Done asks the device whether it is still well, and how often
// it asks again. Otherwise Done looks at a word in pinned memory and makes no call.
const residentTick = time.Millisecond

// resident is a kernel that stays on the GPU. It implements device.Resident.
type resident struct {
	d      *gpu
	k      *kernel
	most   device.Shape
	handle mailboxHandle

	// finished is in pinned memory: the number of the last batch that is done. Close frees it.
	finished *uint64

	mu     sync.Mutex    // held by the methods
	posted uint64        // number of the last batch that was posted
	busy   bool          // and Done has not said true of it
	asked  time.Duration // when it was posted, or the device was last asked about it
	closed bool
}

// Resident implements device.Residenter. The kernel runs on a stream of its own.
func (d *gpu) Resident(k device.Kernel, most device.Shape) (device.Resident, error) {
	const op = "resident"
	if err := d.enter(op); err != nil {
		return nil, err
	}
	defer d.release()
	own, ok := k.(*kernel)
	if !ok || own == nil || own.d != d {
		return nil, d.errorf(op, device.ErrInvalid, "a kernel that this device did not make")
	}
	if err := device.CheckResident(most); err != nil {
		return nil, d.errorf(op, device.ErrInvalid, "%s: %v", own.name, err)
	}
	return own.stay(most)
}

// stay starts the kernel as a resident one and counts it, so that it is not freed as long.
func (k *kernel) stay(most device.Shape) (*resident, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed.Load() {
		return nil, k.d.errClosed("resident", "kernel "+k.name)
	}
	handle, err := k.d.lib.mailboxOpen(k.d.handle, k.op, k.instance, most)
	if err != nil {
		return nil, k.d.checked(err)
	}
	k.residents++
	r := &resident{d: k.d, k: k, most: most, handle: handle, finished: k.d.lib.mailboxFinished(handle)}
	k.d.add(r)
	return r, nil
}

// left notes that a resident kernel of k has gone.
func (k *kernel) left() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.residents--
}

// enter begins a call: it fails if the resident or the device is closed, or the device lost.
func (r *resident) enter(op string) error {
	if err := r.d.enter(op); err != nil {
		return err
	}
	r.mu.Lock()
	if r.closed {
		r.leave()
		return r.d.errClosed(op, r.describe())
	}
	return nil
}

func (r *resident) leave() {
	r.mu.Unlock()
	r.d.release()
}

// Post implements device.Resident.
func (r *resident) Post(shape device.Shape, region device.HostBuffer, table int, result device.HostBuffer) error {
	const op = "post"
	if err := r.enter(op); err != nil {
		return err
	}
	defer r.leave()
	if r.busy {
		return r.d.errorf(op, device.ErrInvalid, "%s: a batch is posted already: wait until Done says true of it", r.k.name)
	}
	args, err := r.args(op, shape, region, table, result)
	if err != nil {
		return err
	}
	if err := r.d.lib.mailboxPost(r.handle, args); err != nil {
		return r.d.checked(err)
	}
	r.posted++
	r.busy, r.asked = true, r.d.Now()
	return nil
}

// args checks a batch, and says where it is. The addresses are the host's: the GPU has pinned memory at the same.
func (r *resident) args(op string, shape device.Shape, region device.HostBuffer, table int, result device.HostBuffer) (a device.LaunchArgs, err error) {
	var needs device.Needs
	if shape.Rows >= 0 && shape.Bytes >= 0 && shape.Longest >= 0 {
		if needs, err = r.d.lib.needs(r.k.op, r.k.instance, shape); err != nil {
			return a, r.d.checked(err)
		}
	}
	if err := device.CheckPost(shape, r.most, needs, region, table, result); err != nil {
		return a, r.d.errorf(op, device.ErrInvalid, "%s: %v", r.k.name, err)
	}
	if region.Kind() != device.Pinned || result.Len() > 0 && result.Kind() != device.Pinned {
		return a, r.d.errorf(op, device.ErrInvalid, "a host buffer that is not pinned: use one of AllocHost")
	}
	from, to := addressOf(region), addressOf(result)
	if from%device.ResidentAlign != 0 || to%4 != 0 {
		return a, r.d.errorf(op, device.ErrInvalid, "the region at %#x and the result at %#x: align them to %d and 4",
			from, to, device.ResidentAlign)
	}
	a.Shape = shape
	a.Rows.Addr, a.Offsets.Addr, a.Result.Addr = from, from+uint64(table), to
	return a, nil
}

func addressOf(b device.HostBuffer) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b.Raw()))))
}

// Done implements device.Resident.
func (r *resident) Done() (bool, error) {
	if err := r.enter("done"); err != nil {
		return false, err
	}
	defer r.leave()
	if !r.busy {
		return true, nil
	}
	if atomic.LoadUint64(r.finished) == r.posted {
		r.busy = false
		return true, nil
	}
	if now := r.d.Now(); now-r.asked >= residentTick {
		r.asked = now
		return false, r.d.checked(r.d.lib.mailboxCheck(r.handle))
	}
	return false, nil
}

// Close implements device.Resident.
func (r *resident) Close() error {
	if !r.d.hold() {
		return nil // the device's Close has stopped it
	}
	defer r.d.release()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	r.d.remove(r)
	err := r.d.bounded("close resident", r.free)
	r.k.left()
	return err
}

func (r *resident) describe() string { return "resident " + r.k.name }
func (r *resident) free() error      { return r.d.lib.mailboxClose(r.handle) }

// stage is before all others: freeing them could wait for the resident kernel, and it uses its operator's instance.
func (r *resident) stage() int { return -1 }
