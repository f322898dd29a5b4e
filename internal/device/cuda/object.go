//go:build cgo

package cuda

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"
)

// object is what Close must free if the caller has not closed it: a stream, an event, a kernel, a pool or a loaded
// operator.
type object struct {
	d     *gpu
	what  string        // kind and name, such as "stream lane-0"
	leak  func() string // describes it in a LeakError; empty if it belongs to the device
	stage int           // objects with a lower stage are freed first
	await func() error  // waits for its work; nil if it has none
	free  func() error  // frees it without checking whether the device is closed

	mu     sync.RWMutex // held for reading by calls other than Enqueue, and for writing by close
	closed atomic.Bool
}

// registry holds a device's open objects.
type registry struct {
	regMu sync.Mutex
	open  map[*object]struct{}
	// Memory and host buffers are plain values, so they are registered by address, with their size in bytes.
	memory  map[uint64]int
	buffers map[unsafe.Pointer]int
}

// add registers an object that was just made. Its other fields are set.
func (d *gpu) add(o *object, what string, stage int, free func() error) {
	o.d, o.what, o.stage, o.free = d, what, stage, free
	if o.leak == nil {
		o.leak = func() string { return what }
	}
	d.regMu.Lock()
	defer d.regMu.Unlock()
	d.open[o] = struct{}{}
}

func (d *gpu) remove(o *object) {
	d.regMu.Lock()
	defer d.regMu.Unlock()
	delete(d.open, o)
}

// put registers an allocation.
func put[K comparable](r *registry, live map[K]int, at K, bytes int) {
	r.regMu.Lock()
	defer r.regMu.Unlock()
	live[at] = bytes
}

// take removes an allocation from the registry. It returns false if there is none at that address with that size.
func take[K comparable](r *registry, live map[K]int, at K, bytes int) bool {
	r.regMu.Lock()
	defer r.regMu.Unlock()
	if size, ok := live[at]; !ok || size != bytes {
		return false
	}
	delete(live, at)
	return true
}

func describeBytes(what string, bytes int) string { return fmt.Sprintf("%s %d bytes", what, bytes) }

// call makes a call on the object, and converts its error. It fails if the object or the device is closed, or if the
// device is lost.
func (o *object) call(op string, fn func() error) error {
	return o.d.call(op, func() error {
		o.mu.RLock()
		defer o.mu.RUnlock()
		if o.closed.Load() {
			return o.d.errClosed(op, o.what)
		}
		return fn()
	})
}

// close closes and frees an object once no call uses it. It does nothing if the object is closed, or if the device is
// closed and has freed it.
func (o *object) close(op string, free func() error) error {
	d := o.d
	if !d.hold() {
		return nil
	}
	defer d.release()
	if err := d.locked(op, &o.mu); err != nil {
		return err
	}
	defer o.mu.Unlock()
	if o.closed.Swap(true) {
		return nil
	}
	if err := d.unused(op); err != nil {
		return err
	}
	d.remove(o)
	return d.bounded(op, free)
}

// unused waits until no running Enqueue can still use an object that was marked as closed before the call.
func (d *gpu) unused(op string) error {
	err := d.locked(op, &d.enqueuing)
	if err == nil {
		d.enqueuing.Unlock()
	}
	return err
}
