//go:build cgo

package cuda

import (
	"slices"
	"sync"
	"time"

	"millrace/internal/device"
)

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

type tryLocker interface {
	sync.Locker
	TryLock() bool
}

// locked takes a lock that calls into the driver hold. It fails under the same conditions as bounded.
func (d *gpu) locked(op string, mu tryLocker) error {
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
	leak := &device.LeakError{Device: d.info.ID, Open: leaks}
	if err != nil {
		return &closeError{LeakError: leak, cause: err}
	}
	return leak
}

// closeError is returned for a device that had leaks and could not be closed cleanly.
type closeError struct {
	*device.LeakError
	cause error
}

func (e *closeError) Error() string   { return e.cause.Error() + "; " + e.LeakError.Error() }
func (e *closeError) Unwrap() []error { return []error{e.LeakError, e.cause} }

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
