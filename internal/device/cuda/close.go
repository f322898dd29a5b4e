//go:build cgo

package cuda

import (
	"slices"
	"time"

	"millrace/internal/device"
)

// closePatience is how long a call that closes something waits for the device's work to end, unless Options say
// otherwise. A kernel that never ends must not keep the process from ending.
const closePatience = 10 * time.Second

// lockLook is how often a lock that another call may never give back is tried.
const lockLook = time.Millisecond

// bounded makes a call that may wait for the device's work. It makes none on a device that is lost, where the driver may
// wait for ever: what it would have freed goes with the process. If the call takes longer than the device's patience, it
// is left alone, and the device counts as lost.
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

// hangs declares the device lost because a call has not come back.
func (d *gpu) hangs(op string) error {
	e := d.errorf(op, device.ErrLost, "the device has not finished its work within %v", d.patience)
	d.lose(e)
	return e
}

// locked takes a lock that is held by calls into the driver. It fails as bounded does.
func (d *gpu) locked(op string, mu interface{ TryLock() bool }) error {
	if mu.TryLock() {
		return nil
	}
	look := time.NewTicker(lockLook)
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

// Close implements device.Device. It waits for queued work for at most its patience (10 s unless Options say
// otherwise); then it returns an error that wraps device.ErrLost. On a device that is lost it waits for nothing and frees
// nothing there: the memory goes with the process.
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
		err = d.locked(op, &d.mu) // no call is under way, and none will follow
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

// closeError is a device that had leaks and could not be closed cleanly either.
type closeError struct {
	*device.LeakError
	cause error
}

func (e *closeError) Error() string   { return e.cause.Error() + "; " + e.LeakError.Error() }
func (e *closeError) Unwrap() []error { return []error{e.LeakError, e.cause} }

// leaks describes what is still open.
func (d *gpu) leaks() (leaks []string) {
	d.regMu.Lock()
	defer d.regMu.Unlock()
	for o := range d.open {
		leaks = append(leaks, o.describe())
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

// shutDown waits for all streams, frees what is still open and shuts the device down. It stops at a loss.
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

// freeAll waits for all streams and frees what is still open.
func (d *gpu) freeAll() {
	var frees []func() error
	var open []resource
	for o := range d.open {
		open = append(open, o)
		if s, ok := o.(*stream); ok {
			frees = append(frees, func() error { return d.lib.streamSynchronize(s.handle) })
		}
	}
	slices.SortFunc(open, func(a, b resource) int { return a.stage() - b.stage() })
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
		_ = d.checked(free()) // a loss is noted; else freeing goes on
	}
}
