package software

import (
	"errors"
	"fmt"
	"time"

	"millrace/internal/device"
)

// Kind is the kind of an operation.
type Kind uint8

// The kinds of operations, each named after the call that enqueues it.
const (
	CopyIn Kind = iota + 1
	CopyOut
	Fill
	Launch
	Record
	Wait
	Notify
	Free
	Gate
)

func (k Kind) String() string {
	return [...]string{"none", "copy in", "copy out", "fill", "launch", "record", "wait", "notify", "free", "gate"}[k]
}

// Op is one operation of a stream. A device uses an Op again once it has finished, so nothing may keep one.
type Op struct {
	Kind   Kind
	Seq    uint64 // number in the order in which the device's operations were enqueued, from 1
	Stream *Stream
	Bytes  int     // bytes moved, filled, or in the rows of a launch; of the allocation for a free
	Kernel *Kernel // of a launch
	Token  uint64  // of a notification
	Gate   *gate   // of a gate
	Note   any     // for the Clock's own use

	uses  [4]use       // memory: source and destination, or a launch's rows, offsets, scratch and result
	fault string       // why the use of memory must fail, if that was known at the call
	shape device.Shape // of a launch
	value byte         // of a fill
	event *Event       // of a record
	point mark         // of a wait: what it waits for
	pool  *Pool        // of a free
	freed use          // of a free
	next  *Op          // the stream's next operation
}

// use is memory that an operation reads or writes.
type use struct {
	mem  []byte
	life *life // nil for host memory that the device did not allocate
}

// mark is a point in a stream: the end of one of its operations. The zero mark refers to no point.
type mark struct {
	stream *Stream
	seq    uint64
}

// passed reports whether the stream has carried out the operation. It returns true for the zero mark. The caller holds
// the lock.
func (m mark) passed() bool { return m.stream == nil || m.stream.done >= m.seq }

// writes reports whether the operation writes the memory of uses[i].
func (o *Op) writes(i int) bool { return i >= 2 || i == 1 && o.Kind != Launch }

// Blocked reports whether o is a wait or a gate that must not end yet. The Clock calls it for the first operation of a
// stream, and holds the lock.
func (o *Op) Blocked() bool {
	return o.Kind == Wait && !o.point.passed() || o.Kind == Gate && !o.Gate.Opened
}

// Awaits returns the stream whose changes can end Blocked.
func (o *Op) Awaits() *Stream {
	if o.Kind == Wait {
		return o.point.stream
	}
	return o.Stream
}

// Do moves the bytes of a copy or a fill, or runs the kernel of a launch. The Clock calls it once for each operation,
// with or without the lock. If it fails, the device must be lost.
func (o *Op) Do() error {
	if o.fault != "" {
		return errors.New(o.fault)
	}
	for i := range o.uses {
		if u := &o.uses[i]; u.life != nil && u.life.over.Load() {
			return fmt.Errorf("illegal address: %d bytes were freed before they were used", len(u.mem))
		}
	}
	switch o.Kind {
	case CopyIn, CopyOut:
		copy(o.uses[1].mem, o.uses[0].mem)
	case Fill:
		fill(o.uses[1].mem, o.value)
	case Launch:
		return o.launch()
	}
	return nil
}

// Finish takes o from its queue. Events, pools and all who wait for the stream see that it is done. The Clock calls it
// with the lock held, and must not use o afterwards.
func (d *Device) Finish(o *Op) {
	s := o.Stream
	if !d.Lost() { // a lost device has no queues
		s.head = o.next
		if s.head == nil {
			s.tail = nil
		}
		s.queued--
		s.done = o.Seq
		switch o.Kind {
		case Record:
			o.event.stamp(mark{s, o.Seq})
		case Notify:
			d.completions.queued--
		case Free:
			o.pool.reclaim(o.freed)
		}
	}
	s.changed.Broadcast()
	*o = Op{next: d.spare}
	d.spare = o
}

// op returns a new operation for the caller to fill in and pass to enqueue.
func (s *Stream) op(kind Kind) *Op {
	o := s.dev.spare
	if o == nil {
		o = new(Op)
	} else {
		s.dev.spare = o.next
	}
	*o = Op{Kind: kind, Stream: s}
	return o
}

// enqueue appends o to its stream. The caller holds the lock and has called admit.
func (s *Stream) enqueue(o *Op) {
	d := s.dev
	if device.Invariants {
		d.mustBeSafe(o)
	}
	d.seq++
	o.Seq, s.last = d.seq, d.seq
	s.queued++
	if s.tail == nil {
		s.head = o
	} else {
		s.tail.next = o
	}
	s.tail = o
	if o.Kind == Record {
		o.event.move(mark{s, o.Seq})
	}
	s.changed.Broadcast()
	d.clock.Enqueued(o)
}

// Clock decides when the operations of a device run, and what time it is. It runs the operations of each stream in
// order: it takes Stream.Head once that is not Op.Blocked, calls Op.Do, then Device.Finish, or Device.Lose if Do failed.
// It passes the token of each notification to Device.Complete. The device calls all methods but Stop with its lock held.
type Clock interface {
	// Now returns the time since the device's epoch.
	Now() time.Duration

	// Started is called for each new stream.
	Started(s *Stream)

	// Admit returns nil once s has room for another operation, or an error if it must not have one. It may release the
	// lock while it waits.
	Admit(s *Stream) error

	// Enqueued is called when o has become the last operation of its stream.
	Enqueued(o *Op)

	// Opened is called when the caller has opened a gate.
	Opened()

	// Polled is called when the caller asks whether an event was reached.
	Polled()

	// Step moves a virtual clock to the next instant at which an operation ends. It returns false if the caller has to
	// wait until another goroutine has changed the state. In real time that is always so.
	Step(w Waiter) bool

	// Lost is called when the device was lost. The queues of all streams are empty then.
	Lost()

	// Stop returns once no goroutine of the clock is left. All streams are closed then, and their operations are done.
	Stop()
}

// Waiter is the kind of a call that waits.
type Waiter uint8

// The waiters.
const (
	ForStream     Waiter = iota + 1 // Stream.Synchronize, and Close
	ForEvent                        // Event.Synchronize
	ForCompletion                   // Device.WaitCompletion
)
