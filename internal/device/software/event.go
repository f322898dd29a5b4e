package software

import (
	"context"
	"time"

	"millrace/internal/device"
)

// Event holds the mark of its latest Record. It implements device.Event. A wait copies the mark, so a later Record
// doesn't affect the wait.
type Event struct {
	dev    *Device
	timed  bool
	latest mark
	time   time.Duration // time at which the stream reached latest; set only if timed
	order  order         // operations that come before latest; with the invariants tag only
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

// event returns e as an open event of this device. It fails if e is closed or belongs to another device. The caller
// holds the lock.
func (d *Device) event(call string, e device.Event) (*Event, error) {
	own, ok := e.(*Event)
	if !ok || own == nil || own.dev != d {
		return nil, d.errorf(call, device.ErrInvalid, "the event is not one of this device")
	}
	return own, own.checkUsable(call)
}

// checkUsable returns nil if the event accepts calls. The caller holds the lock.
func (e *Event) checkUsable(call string) error { return e.dev.usableObject(call, e, e.closed) }

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

// stamp stores the current time as the time at which the stream reached m. It stores nothing if a later Record has
// replaced m. The caller holds the lock.
func (e *Event) stamp(m mark) {
	if e.timed && e.latest == m {
		e.time = e.dev.clock.Now()
	}
}

// Wait implements device.Stream. A wait for a mark that its stream has reached needs no operation.
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

// Done implements device.Event. It advances a virtual clock a little, so polling makes progress.
func (e *Event) Done() (bool, error) {
	const call = "event done"
	e.dev.Mu.Lock()
	defer e.dev.Mu.Unlock()
	if err := e.checkUsable(call); err != nil {
		return false, err
	}
	e.dev.clock.Polled()
	if err := e.checkUsable(call); err != nil {
		return false, err
	}
	return e.latest.passed(), nil
}

// Synchronize implements device.Event.
func (e *Event) Synchronize() error {
	e.dev.Mu.Lock()
	defer e.dev.Mu.Unlock()
	if err := e.checkUsable("await event"); err != nil {
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
	if err := e.checkUsable(call); err != nil {
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

// Close implements device.Event. Enqueued waits keep their marks. On a lost device it frees the event and returns
// ErrLost.
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

// maxCompletions is the maximum number of tokens that were notified and not yet returned by WaitCompletion.
const maxCompletions = 1 << 16

// completions carries tokens from streams to WaitCompletion, in the order in which the streams reached them. The
// device's lock guards it.
type completions struct {
	queued  int           // number of notifications in streams
	arrived []uint64      // tokens; all tokens before index first were fetched
	first   int           // index of the next token in arrived
	changed chan struct{} // holds a value if WaitCompletion must check the state again
}

// signal makes WaitCompletion check the state again.
func (c *completions) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// outstanding returns the number of tokens that were notified and not fetched.
func (c *completions) outstanding() int { return c.queued + len(c.arrived) - c.first }

// push adds a token. If arrived is full and more than half of it was fetched, push reuses the space of fetched tokens.
func (c *completions) push(token uint64) {
	if len(c.arrived) == cap(c.arrived) && c.first > len(c.arrived)/2 {
		c.arrived = c.arrived[:copy(c.arrived, c.arrived[c.first:])]
		c.first = 0
	}
	c.arrived = append(c.arrived, token)
	c.signal()
}

// pop returns the first token, or false if there is none.
func (c *completions) pop() (token uint64, ok bool) {
	if c.first == len(c.arrived) {
		return 0, false
	}
	token = c.arrived[c.first]
	if c.first++; c.first == len(c.arrived) {
		c.drop()
	}
	return token, true
}

// drop removes all tokens from arrived.
func (c *completions) drop() { c.arrived, c.first = c.arrived[:0], 0 }

// Notify implements device.Stream. It fails with ErrOutOfMemory while 65,536 completions are outstanding.
func (s *Stream) Notify(token uint64) error {
	const call = "notify"
	d := s.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := s.admit(call); err != nil {
		return err
	}
	if d.completions.outstanding() >= maxCompletions {
		return d.errorf(call, device.ErrOutOfMemory,
			"%d completions are outstanding: call WaitCompletion", maxCompletions)
	}
	d.completions.queued++
	o := s.op(Notify)
	o.Token = token
	s.enqueue(o)
	return nil
}

// Complete passes a token to WaitCompletion. Only the Clock may call Complete, with the lock held.
func (d *Device) Complete(token uint64) { d.completions.push(token) }

// WaitCompletion implements device.Device. It returns tokens that arrived before the loss of the device, and then
// ErrLost. A virtual clock moves to the next completion. If nothing is queued or only gates delay work, no completion
// can arrive. WaitCompletion then blocks until another goroutine changes that or ctx is done.
func (d *Device) WaitCompletion(ctx context.Context) (uint64, error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	for {
		if token, ok := d.completions.pop(); ok {
			return token, nil
		}
		if err := d.checkUsable("wait completion"); err != nil {
			return 0, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if d.clock.Step(ForCompletion) {
			continue
		}
		d.Mu.Unlock()
		select {
		case <-d.completions.changed:
		case <-ctx.Done():
		}
		d.Mu.Lock()
	}
}

// gate stalls a stream until the gate is opened.
type gate struct {
	stream *Stream
	Opened bool // the Clock may set it to open the gate
}

// Gate implements device.Gater. The gate may be opened more than once.
func (d *Device) Gate(s device.Stream) (open func(), err error) {
	const call = "gate"
	d.Mu.Lock()
	defer d.Mu.Unlock()
	own, err := d.stream(call, s)
	if err != nil {
		return nil, err
	}
	if err := own.admit(call); err != nil {
		return nil, err
	}
	o := own.op(Gate)
	o.Gate = &gate{stream: own}
	open = o.Gate.Open // the stream may have reused o when open is called
	own.enqueue(o)
	return open, nil
}

// Open lets the stream pass the gate. It takes the lock.
func (g *gate) Open() {
	d := g.stream.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if g.Opened {
		return
	}
	g.Opened = true
	g.stream.changed.Broadcast()
	d.clock.Opened()
}
