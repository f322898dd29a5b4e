package software

import (
	"time"

	"millrace/internal/device"
)

// Event holds the mark of its latest Record. It implements device.Event. A wait copies the mark, so a later Record
// doesn't change what it waits for.
type Event struct {
	dev    *Device
	timed  bool
	latest mark
	time   time.Duration // time at which latest was passed; only if timed
	order  order         // latest comes after these operations; with the invariants tag only
	closed bool
}

// NewEvent implements device.Device.
func (d *Device) NewEvent(flags device.EventFlags) (device.Event, error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	e := &Event{dev: d, timed: flags&device.Timed != 0}
	if err := d.add("new event", e); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Event) leak() string { return "event" }

// event returns e as an open event of this device. The caller holds the lock.
func (d *Device) event(call string, e device.Event) (*Event, error) {
	own, ok := e.(*Event)
	if !ok || own == nil || own.dev != d {
		return nil, d.errorf(call, device.ErrInvalid, "the event is not one of this device")
	}
	return own, own.usable(call)
}

// usable returns nil if the event accepts calls. The caller holds the lock.
func (e *Event) usable(call string) error {
	if err := e.dev.usable(call); err != nil {
		return err
	}
	if e.closed {
		return e.dev.errorf(call, device.ErrClosed, "the event was closed")
	}
	return nil
}

// Record implements device.Stream.
func (s *Stream) Record(e device.Event) error {
	const call = "record"
	s.dev.Mu.Lock()
	defer s.dev.Mu.Unlock()
	if err := s.admit(call); err != nil {
		return err
	}
	own, err := s.dev.event(call, e)
	if err != nil {
		return err
	}
	o := s.op(Record)
	o.event = own
	s.enqueue(o)
	return nil
}

// move makes m the latest mark. The caller holds the lock.
func (e *Event) move(m mark) {
	e.latest = m
	if device.Invariants {
		e.order = m.stream.order.with(m)
	}
}

// stamp stores the time at which m was passed, unless a later Record has replaced m. The caller holds the lock.
func (e *Event) stamp(m mark) {
	if e.timed && e.latest == m {
		e.time = e.dev.clock.Now()
	}
}

// Wait implements device.Stream. A wait for a mark that was passed costs nothing.
func (s *Stream) Wait(e device.Event) error {
	const call = "wait"
	s.dev.Mu.Lock()
	defer s.dev.Mu.Unlock()
	if err := s.admit(call); err != nil {
		return err
	}
	own, err := s.dev.event(call, e)
	if err != nil {
		return err
	}
	if device.Invariants {
		s.mustFollow(own)
	}
	if own.latest.stream == s || own.latest.passed() {
		return nil
	}
	o := s.op(Wait)
	o.point = own.latest
	s.enqueue(o)
	return nil
}

// Done implements device.Event. It advances a virtual clock a little, so that polling ends.
func (e *Event) Done() (bool, error) {
	const call = "event done"
	e.dev.Mu.Lock()
	defer e.dev.Mu.Unlock()
	if err := e.usable(call); err != nil {
		return false, err
	}
	e.dev.clock.Polled()
	if err := e.usable(call); err != nil {
		return false, err
	}
	return e.latest.passed(), nil
}

// Synchronize implements device.Event.
func (e *Event) Synchronize() error {
	e.dev.Mu.Lock()
	defer e.dev.Mu.Unlock()
	if err := e.usable("await event"); err != nil {
		return err
	}
	e.dev.await(e.latest, ForEvent)
	return e.dev.Err()
}

// Time implements device.Event. It doesn't move a virtual clock.
func (e *Event) Time() (time.Duration, error) {
	const call = "event time"
	e.dev.Mu.Lock()
	defer e.dev.Mu.Unlock()
	if err := e.usable(call); err != nil {
		return 0, err
	}
	switch {
	case !e.timed:
		return 0, e.dev.errorf(call, device.ErrInvalid, "the event is untimed: make it with device.Timed")
	case e.latest.stream == nil:
		return 0, e.dev.errorf(call, device.ErrInvalid, "the event was never recorded")
	case !e.latest.passed():
		return 0, e.dev.errorf(call, device.ErrNotReady, "stream %s has not got there", e.latest.stream.name)
	}
	return e.time, nil
}

// Close implements device.Event. Waits that are already enqueued keep their marks. On a lost device it frees the event
// and returns ErrLost.
func (e *Event) Close() error {
	e.dev.Mu.Lock()
	defer e.dev.Mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	delete(e.dev.open, e)
	return e.dev.Err()
}
