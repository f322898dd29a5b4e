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

// object is a stream, an event, a kernel, a pool or a loaded operator. The device's Close must free it if the caller
// has not closed it.
type object struct {
	d     *gpu
	what  string        // kind and name, such as "stream lane-0"
	leak  func() string // returns the object's description for a LeakError, or "" if the object belongs to the device
	stage int           // objects with a lower stage are freed first
	await func() error  // waits for the object's work; nil if it has none
	free  func() error  // frees the object without checking whether the device is closed

	mu     sync.RWMutex // locked for reading by calls other than Enqueue, and for writing by close
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

// add registers a new object and sets its remaining fields.
func (g *gpu) add(o *object, what string, stage int, free func() error) {
	o.d, o.what, o.stage, o.free = g, what, stage, free
	if o.leak == nil {
		o.leak = func() string { return what }
	}
	g.regMu.Lock()
	defer g.regMu.Unlock()
	g.open[o] = struct{}{}
}

func (g *gpu) remove(o *object) {
	g.regMu.Lock()
	defer g.regMu.Unlock()
	delete(g.open, o)
}

// put registers an allocation.
func put[K comparable](r *registry, live map[K]int, at K, bytes int) {
	r.regMu.Lock()
	defer r.regMu.Unlock()
	live[at] = bytes
}

// take removes an allocation from the registry. It returns false if live has no allocation of the given size at the
// key at.
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

// call makes a call on the object and converts its error. It fails if the object or the device is closed, or if the
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

// close closes and frees an object once no call uses it. It does nothing if the object is closed. A closed device
// has already freed the object.
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
	if err := d.checkUnused(op); err != nil {
		return err
	}
	d.remove(o)
	return d.bounded(op, free)
}

// checkUnused waits for the running Enqueue calls, which may still use an object that has just been closed.
func (g *gpu) checkUnused(op string) error {
	err := g.locked(op, &g.enqueuing)
	if err == nil {
		g.enqueuing.Unlock()
	}
	return err
}

// closePatience is the default time limit for a call that closes an object and waits for the device's work. A kernel
// that never ends must not keep the process from exiting.
const closePatience = 10 * time.Second

// lockRetry is the interval between attempts to take a lock that another call might never release.
const lockRetry = time.Millisecond

// bounded makes a call that may wait for the device's work. On a lost device it returns the loss without making the
// call, because the driver might wait forever. If the call exceeds the device's patience, bounded abandons it and
// records a loss.
func (g *gpu) bounded(op string, call func() error) error {
	if err := g.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- g.checked(call()) }()
	over := time.NewTimer(g.patience)
	defer over.Stop()
	select {
	case err := <-done:
		return err
	case <-over.C:
		return g.hangs(op)
	}
}

// hangs records that the device is lost because a call has not returned.
func (g *gpu) hangs(op string) error {
	e := g.errorf(op, device.ErrLost, "the device has not finished its work within %v", g.patience)
	g.lose(e)
	return e
}

// locked takes a lock that is held by calls into the driver. It fails under the same conditions as bounded.
func (g *gpu) locked(op string, mu *sync.RWMutex) error {
	if mu.TryLock() {
		return nil
	}
	look := time.NewTicker(lockRetry)
	defer look.Stop()
	for began := time.Now(); ; <-look.C {
		switch {
		case mu.TryLock():
			return nil
		case g.Err() != nil:
			return g.Err()
		case time.Since(began) > g.patience:
			return g.hangs(op)
		}
	}
}

// Close implements device.Device. If queued work doesn't end within Options.ClosePatience (10 s by default), Close
// returns an error that wraps device.ErrLost. On a lost device, it returns at once, and the memory is freed when the
// process exits.
func (g *gpu) Close() error {
	if g.closing.Swap(true) {
		return nil
	}
	g.unreported.Stop()
	g.waiter.close()
	const op = "close"
	leaks := g.leaks()
	err := g.Err()
	if err == nil {
		err = g.locked(op, &g.mu) // from now on no call runs
	}
	if err == nil {
		g.mu.Unlock()
		err = g.bounded(op, g.shutDown)
	}
	if len(leaks) == 0 {
		return err
	}
	return errors.Join(err, &device.LeakError{Device: g.info.ID, Open: leaks})
}

// leaks describes the objects that are still open. Loaded operators aren't leaks, because they belong to the device.
func (g *gpu) leaks() (leaks []string) {
	g.regMu.Lock()
	defer g.regMu.Unlock()
	for o := range g.open {
		if leak := o.leak(); leak != "" {
			leaks = append(leaks, leak)
		}
	}
	for _, bytes := range g.memory {
		leaks = append(leaks, describeBytes("memory", bytes))
	}
	for _, bytes := range g.buffers {
		leaks = append(leaks, describeBytes("host buffer", bytes))
	}
	slices.Sort(leaks)
	return leaks
}

// shutDown waits for all streams, frees all open objects and shuts the device down. It stops if the device is lost.
func (g *gpu) shutDown() error {
	g.freeAll()
	g.clock.close(g)
	g.gateMu.Lock()
	g.gatesGone = g.Err() == nil
	g.gateMu.Unlock()
	if err := g.Err(); err != nil {
		return err
	}
	return g.lib.deviceClose(g.handle)
}

// freeAll waits for all streams and frees all open objects.
func (g *gpu) freeAll() {
	var frees []func() error
	var open []*object
	for o := range g.open {
		open = append(open, o)
		if o.await != nil {
			frees = append(frees, o.await)
		}
	}
	slices.SortFunc(open, func(a, b *object) int { return a.stage - b.stage })
	for _, o := range open {
		frees = append(frees, o.free)
	}
	for address := range g.memory {
		frees = append(frees, func() error { return g.lib.deviceFree(g.handle, address) })
	}
	for address := range g.buffers {
		frees = append(frees, func() error { return g.lib.hostFree(g.handle, address) })
	}
	for _, free := range frees {
		if g.Err() != nil {
			return
		}
		_ = g.checked(free()) // checked records a loss; after other errors, freeing continues
	}
}
