//go:build cgo

package cuda

import (
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/device"
)

// event is a CUDA event.
type event struct {
	d      *gpu
	handle eventHandle
	timed  bool

	recorded atomic.Bool

	mu     sync.Mutex // held by calls other than Enqueue
	closed atomic.Bool
}

// NewEvent implements device.Device.
func (d *gpu) NewEvent(flags device.EventFlags) (device.Event, error) {
	if err := d.beginCall("new event"); err != nil {
		return nil, err
	}
	defer d.release()
	handle, err := d.lib.eventCreate(d.handle, flags)
	if err != nil {
		return nil, d.checked(err)
	}
	e := &event{d: d, handle: handle, timed: flags&device.Timed != 0}
	d.add(e)
	return e, nil
}

// eventOf returns e as an event of this device.
func (d *gpu) eventOf(op string, e device.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok || own == nil || own.d != d {
		return nil, d.errorf(op, device.ErrInvalid, "an event that this device did not make")
	}
	return own, nil
}

// Done implements device.Event.
func (e *event) Done() (bool, error) {
	if err := e.d.beginCall("event done"); err != nil {
		return false, err
	}
	defer e.d.release()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return false, e.d.errClosed("event done", "event")
	}
	done, err := e.d.lib.eventReached(e.handle)
	return done, e.d.checked(err)
}

// Synchronize implements device.Event. A concurrent Close of the event waits for it.
func (e *event) Synchronize() error {
	const op = "await event"
	if err := e.d.beginCall(op); err != nil {
		return err
	}
	defer e.d.release()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return e.d.errClosed(op, "event")
	}
	return e.d.checked(e.d.lib.eventSynchronize(e.handle))
}

// opEventTime is the call for which CUDA's "not ready" is a valid answer.
const opEventTime = "event time"

// Time implements device.Event.
func (e *event) Time() (time.Duration, error) {
	const op = opEventTime
	if err := e.d.beginCall(op); err != nil {
		return 0, err
	}
	defer e.d.release()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed.Load():
		return 0, e.d.errClosed(op, "event")
	case !e.timed:
		return 0, e.d.errorf(op, device.ErrInvalid, "the event was made without timing")
	case !e.recorded.Load():
		return 0, e.d.errorf(op, device.ErrInvalid, "the event was never recorded")
	}
	at, err := e.d.clock.timeOf(e.d, e.handle)
	return at, e.d.checked(err)
}

// Close implements device.Event.
func (e *event) Close() error { return e.d.closeOnce("close event", e, &e.mu, &e.closed, e.free) }

func (e *event) describe() string { return "event" }
func (e *event) free() error      { return e.d.lib.eventDestroy(e.handle) }
func (e *event) stage() int       { return 0 }
