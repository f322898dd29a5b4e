package host

import (
	"sync"
	"time"

	"millrace/internal/device"
)

// mark is a point in a stream: the end of operation seq. The zero mark refers to no point.
type mark struct {
	stream *stream
	seq    uint64
}

// reached reports whether the stream has reached the mark. It returns true for the zero mark.
func (m mark) reached() bool { return m.stream == nil || m.stream.Passed(m.seq) }

// event holds the mark of its latest Record. A wait copies the mark, so a later Record doesn't change what it waits
// for.
type event struct {
	dev   *Device
	timed bool

	mu     sync.Mutex
	latest mark
	time   time.Duration // time at which latest was reached; only if timed
	order  order         // latest comes after these operations; with the invariants tag only
	closed bool
}

// NewEvent implements device.Device.
func (d *Device) NewEvent(flags device.EventFlags) (device.Event, error) {
	e := &event{dev: d, timed: flags&device.Timed != 0}
	if err := d.Add("new event", e); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *event) Leak() string { return "event" }

// usable returns nil if the event accepts calls.
func (e *event) usable(call string) error {
	if err := e.dev.Usable(call); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.dev.Errorf(call, device.ErrClosed, "the event was closed")
	}
	return nil
}

// move makes m the latest mark. Record calls it.
func (e *event) move(m mark) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.latest = m
	if device.Invariants {
		e.order = m.stream.order.clone()
		e.order[m.stream] = m.seq
	}
}

// stamp stores the time at which m was reached, unless a later Record has replaced m.
func (e *event) stamp(m mark) {
	if !e.timed {
		return
	}
	now := e.dev.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.latest == m {
		e.time = now
	}
}

// current returns the latest mark and the operations that it comes after.
func (e *event) current() (mark, order) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.latest, e.order
}

// Done implements device.Event.
func (e *event) Done() (bool, error) {
	if err := e.usable("event done"); err != nil {
		return false, err
	}
	latest, _ := e.current()
	return latest.reached(), nil
}

// Synchronize implements device.Event.
func (e *event) Synchronize() error {
	if err := e.usable("await event"); err != nil {
		return err
	}
	if latest, _ := e.current(); latest.stream != nil {
		latest.stream.await(latest.seq)
	}
	return e.dev.Err()
}

// Time implements device.Event.
func (e *event) Time() (time.Duration, error) {
	const call = "event time"
	if err := e.usable(call); err != nil {
		return 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.timed:
		return 0, e.dev.Errorf(call, device.ErrInvalid, "the event is untimed: make it with device.Timed")
	case e.latest.stream == nil:
		return 0, e.dev.Errorf(call, device.ErrInvalid, "the event was never recorded")
	case !e.latest.reached():
		return 0, e.dev.Errorf(call, device.ErrNotReady, "stream %s has not got there", e.latest.stream.name)
	}
	return e.time, nil
}

// Close implements device.Event. Waits that are already enqueued keep their marks.
func (e *event) Close() error {
	e.mu.Lock()
	again := e.closed
	e.closed = true
	e.mu.Unlock()
	if again {
		return nil
	}
	e.dev.Remove(e)
	return e.dev.Err()
}
