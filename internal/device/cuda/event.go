//go:build cgo

package cuda

import (
	"sync/atomic"
	"time"

	"millrace/internal/device"
)

// event is a CUDA event.
type event struct {
	object
	handle   eventHandle
	timed    bool
	recorded atomic.Bool
}

// NewEvent implements device.Device.
func (d *gpu) NewEvent(flags device.EventFlags) (device.Event, error) {
	e := &event{timed: flags&device.Timed != 0}
	err := d.call("new event", func() (err error) {
		if e.handle, err = d.lib.eventCreate(d.handle, flags); err == nil {
			d.add(&e.object, "event", 0, func() error { return d.lib.eventDestroy(e.handle) })
		}
		return err
	})
	if err != nil {
		return nil, err
	}
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
func (e *event) Done() (done bool, err error) {
	err = e.call("event done", func() (err error) {
		done, err = e.d.lib.eventReached(e.handle)
		return err
	})
	return done, err
}

// Synchronize implements device.Event. A concurrent Close of the event waits for it.
func (e *event) Synchronize() error {
	return e.call("await event", func() error { return e.d.lib.eventSynchronize(e.handle) })
}

// opEventTime is the call for which CUDA's "not ready" is a valid answer.
const opEventTime = "event time"

// Time implements device.Event.
func (e *event) Time() (at time.Duration, err error) {
	const op = opEventTime
	err = e.call(op, func() (err error) {
		switch {
		case !e.timed:
			return e.d.errorf(op, device.ErrInvalid, "the event was made without timing")
		case !e.recorded.Load():
			return e.d.errorf(op, device.ErrInvalid, "the event was never recorded")
		}
		at, err = e.d.clock.timeOf(e.d, e.handle)
		return err
	})
	return at, err
}

// Close implements device.Event.
func (e *event) Close() error { return e.close("close event", e.free) }
