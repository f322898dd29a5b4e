//go:build cgo

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"millrace/internal/device"
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

// closePatience is the default limit for a call that closes something and waits for the device's work. A kernel that
// never ends must not keep the process from exiting.
const closePatience = 10 * time.Second

// lockRetry is the interval between attempts to take a lock that another call may never release.
const lockRetry = time.Millisecond

// bounded makes a call that may wait for the device's work. On a lost device it doesn't make the call, because the
// driver might wait forever; the memory is then freed when the process exits. If the call exceeds the device's
// patience, bounded abandons it, and the device counts as lost.
func (d *gpu) bounded(op string, call func() error) error {
	if err := d.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- d.checked(call()) }()
	over := time.NewTimer(d.patience)
	defer over.Stop()
	select {
	case err := <-done:
		return err
	case <-over.C:
		return d.hangs(op)
	}
}

// hangs records that the device is lost because a call has not returned.
func (d *gpu) hangs(op string) error {
	e := d.errorf(op, device.ErrLost, "the device has not finished its work within %v", d.patience)
	d.lose(e)
	return e
}

// locked takes a lock that calls into the driver hold. It fails under the same conditions as bounded.
func (d *gpu) locked(op string, mu *sync.RWMutex) error {
	if mu.TryLock() {
		return nil
	}
	look := time.NewTicker(lockRetry)
	defer look.Stop()
	for began := time.Now(); ; <-look.C {
		switch {
		case mu.TryLock():
			return nil
		case d.Err() != nil:
			return d.Err()
		case time.Since(began) > d.patience:
			return d.hangs(op)
		}
	}
}

// Close implements device.Device. It waits for queued work for at most Options.ClosePatience (10 s by default), and
// then returns an error that wraps device.ErrLost. On a lost device it waits for nothing and frees nothing: the memory
// is freed when the process exits.
func (d *gpu) Close() error {
	if d.closing.Swap(true) {
		return nil
	}
	d.unreported.Stop()
	d.waiter.close()
	const op = "close"
	leaks := d.leaks()
	err := d.Err()
	if err == nil {
		err = d.locked(op, &d.mu) // no call is running, and none will follow
	}
	if err == nil {
		d.mu.Unlock()
		err = d.bounded(op, d.shutDown)
	}
	if len(leaks) == 0 {
		return err
	}
	return errors.Join(err, &device.LeakError{Device: d.info.ID, Open: leaks})
}

// leaks describes the objects that are still open. Loaded operators aren't leaks: they belong to the device.
func (d *gpu) leaks() (leaks []string) {
	d.regMu.Lock()
	defer d.regMu.Unlock()
	for o := range d.open {
		if leak := o.leak(); leak != "" {
			leaks = append(leaks, leak)
		}
	}
	for _, bytes := range d.memory {
		leaks = append(leaks, describeBytes("memory", bytes))
	}
	for _, bytes := range d.buffers {
		leaks = append(leaks, describeBytes("host buffer", bytes))
	}
	slices.Sort(leaks)
	return leaks
}

// shutDown waits for all streams, frees all open objects and shuts the device down. It stops if the device is lost.
func (d *gpu) shutDown() error {
	d.freeAll()
	d.clock.close(d)
	d.gateMu.Lock()
	d.gatesGone = d.Err() == nil
	d.gateMu.Unlock()
	if err := d.Err(); err != nil {
		return err
	}
	return d.lib.deviceClose(d.handle)
}

// freeAll waits for all streams and frees all open objects.
func (d *gpu) freeAll() {
	var frees []func() error
	var open []*object
	for o := range d.open {
		open = append(open, o)
		if o.await != nil {
			frees = append(frees, o.await)
		}
	}
	slices.SortFunc(open, func(a, b *object) int { return a.stage - b.stage })
	for _, o := range open {
		frees = append(frees, o.free)
	}
	for address := range d.memory {
		frees = append(frees, func() error { return d.lib.deviceFree(d.handle, address) })
	}
	for address := range d.buffers {
		frees = append(frees, func() error { return d.lib.hostFree(d.handle, address) })
	}
	for _, free := range frees {
		if d.Err() != nil {
			return
		}
		_ = d.checked(free()) // a loss is recorded; after other errors, freeing continues
	}
}
