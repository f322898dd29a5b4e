//go:build cgo

package cuda

import (
	"sync"
	"time"

	"millrace/internal/device"
)

// event is a CUDA event.
type event struct {
	d      *gpu
	handle eventHandle
	timed  bool

	mu       sync.Mutex
	recorded bool
	closed   bool
}

// NewEvent implements device.Device.
func (d *gpu) NewEvent(timed bool) (device.Event, error) {
	if err := d.enter("new event"); err != nil {
		return nil, err
	}
	defer d.release()
	handle, err := d.lib.eventCreate(d.handle, timed)
	if err != nil {
		return nil, d.checked(err)
	}
	e := &event{d: d, handle: handle, timed: timed}
	d.add(e)
	return e, nil
}

// eventOf is e as an event of this device.
func (d *gpu) eventOf(op string, e device.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok || own == nil || own.d != d {
		return nil, d.errorf(op, device.ErrInvalid, "an event that this device did not make")
	}
	return own, nil
}

// recordOn marks the stream's point. The caller has entered the stream.
func (e *event) recordOn(s *stream) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.d.errClosed("record", "event")
	}
	err := e.d.checked(e.d.lib.eventRecord(e.handle, s.handle))
	e.recorded = e.recorded || err == nil
	return err
}

// holdUp makes the stream wait for the event. The caller has entered the stream.
func (e *event) holdUp(s *stream) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.d.errClosed("wait", "event")
	}
	if device.Invariants && !e.recorded {
		panic("cuda: stream " + s.name + " waits for an event that was never recorded, which holds nothing up")
	}
	return e.d.checked(e.d.lib.streamWait(s.handle, e.handle))
}

// Done implements device.Event.
func (e *event) Done() (bool, error) {
	if err := e.d.enter("event done"); err != nil {
		return false, err
	}
	defer e.d.release()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false, e.d.errClosed("event done", "event")
	}
	done, err := e.d.lib.eventReached(e.handle)
	return done, e.d.checked(err)
}

// Time implements device.Event.
func (e *event) Time() (time.Duration, error) {
	const op = "event time"
	if err := e.d.enter(op); err != nil {
		return 0, err
	}
	defer e.d.release()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return 0, e.d.errClosed(op, "event")
	case !e.timed:
		return 0, e.d.errorf(op, device.ErrInvalid, "the event was made without timing")
	case !e.recorded:
		return 0, e.d.errorf(op, device.ErrInvalid, "the event was never recorded")
	}
	at, err := e.d.clock.timeOf(e.d, e.handle)
	return at, e.d.checked(err)
}

// Close implements device.Event.
func (e *event) Close() error {
	if !e.d.hold() {
		return nil // the device's Close has given it back
	}
	defer e.d.release()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	e.d.remove(e)
	return e.d.checked(e.free())
}

func (e *event) describe() string { return "event" }
func (e *event) free() error      { return e.d.lib.eventDestroy(e.handle) }
func (e *event) stage() int       { return 0 }
