package sim

import (
	"context"
	"time"

	"millrace/internal/device"
)

// mark is one recording of an event. A wait keeps the mark that was current, so recording the event again doesn't
// change what it waits for.
type mark struct {
	reached bool
	at      time.Duration
	waiting []*op // waits at the head of their streams
}

// Event is a device.Event.
type Event struct {
	dev    *Device
	timed  bool
	mark   *mark // nil before the first Record
	closed bool
}

// NewEvent implements device.Device.
func (d *Device) NewEvent(flags device.EventFlags) (device.Event, error) {
	e := &Event{dev: d, timed: flags&device.Timed != 0}
	if err := d.Add("new event", e); err != nil {
		return nil, err
	}
	return e, nil
}

// Leak implements software.Object.
func (e *Event) Leak() string { return "event" }

// event returns e as an open event of this device. The caller holds the lock.
func (d *Device) event(call string, e device.Event) (*Event, error) {
	mine, ok := e.(*Event)
	if !ok || mine == nil || mine.dev != d {
		return nil, d.Errorf(call, device.ErrInvalid, "the event is not of this device")
	}
	return mine, mine.usable(call)
}

// usable returns an error if the event is closed or the device refuses calls. The caller holds the lock.
func (e *Event) usable(call string) error {
	if err := e.dev.Usable(call); err != nil {
		return err
	}
	if e.closed {
		return e.dev.Errorf(call, device.ErrClosed, "the event was closed")
	}
	return nil
}

// Record implements device.Stream.
func (s *Stream) Record(e device.Event) error {
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.usable("record"); err != nil {
		return err
	}
	ev, err := d.event("record", e)
	if err != nil {
		return err
	}
	m := &mark{}
	ev.mark = m
	s.enqueue(&op{kind: Record, mark: m})
	return nil
}

// reach lets the waits for m continue. The caller holds the lock.
func (d *Device) reach(m *mark) {
	m.reached, m.at = true, d.now
	for _, o := range m.waiting {
		d.carryOut(o)
	}
	m.waiting = nil
}

// Wait implements device.Stream.
func (s *Stream) Wait(e device.Event) error {
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.usable("wait"); err != nil {
		return err
	}
	ev, err := d.event("wait", e)
	if err != nil {
		return err
	}
	if ev.mark == nil {
		if device.Invariants {
			panic("sim: stream " + s.name + " waits on an event that was never recorded: it would hold nothing up")
		}
		return nil
	}
	s.enqueue(&op{kind: Wait, mark: ev.mark})
	return nil
}

// Done implements device.Event. It advances the clock by PollCost, unless Hold is in effect. If no operation is in
// progress, a gate that is ten seconds old gives way, so polling for work behind a gate ends too.
func (e *Event) Done() (bool, error) {
	d := e.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := e.usable("query event"); err != nil {
		return false, err
	}
	if d.holds == 0 {
		d.advance(d.now + PollCost)
	}
	if len(d.running) == 0 && d.gateOverdue() {
		d.giveWay()
	}
	if err := e.usable("query event"); err != nil {
		return false, err
	}
	return e.mark == nil || e.mark.reached, nil
}

// Synchronize implements device.Event. It moves the clock to the instant at which the mark is reached.
func (e *Event) Synchronize() error {
	const call = "await event"
	d := e.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := e.usable(call); err != nil {
		return err
	}
	for m := e.mark; m != nil && !m.reached && !d.Lost(); {
		if d.holds > 0 {
			d.block(context.Background())
			continue
		}
		if !d.step() && !d.giveWay() {
			panic("sim: an event is waited for that nothing can reach")
		}
	}
	return d.Usable(call)
}

// Time implements device.Event. It doesn't move the clock.
func (e *Event) Time() (time.Duration, error) {
	const call = "event time"
	d := e.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := e.usable(call); err != nil {
		return 0, err
	}
	switch {
	case !e.timed:
		return 0, d.Errorf(call, device.ErrInvalid, "the event was made without timing")
	case e.mark == nil:
		return 0, d.Errorf(call, device.ErrInvalid, "the event was never recorded")
	case !e.mark.reached:
		return 0, d.Errorf(call, device.ErrNotReady, "the stream has not got there")
	}
	return e.mark.at, nil
}

// Close implements device.Event. On a lost device it frees the event and returns ErrLost.
func (e *Event) Close() error {
	d := e.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	d.Remove(e)
	return d.Err()
}
