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

// Op is one operation of a stream. A device reuses an Op once the operation has finished, so nothing may keep an Op.
type Op struct {
	Kind   Kind
	Seq    uint64 // position in the order in which the device's operations were enqueued, from 1
	Stream *Stream
	Bytes  int     // bytes moved, bytes filled, bytes of a launch's rows, or bytes of a freed allocation
	Kernel *Kernel // kernel of a launch
	Token  uint64  // token of a notification
	Gate   *gate   // the gate, if o is a gate
	Note   any     // data of the Clock

	uses  [4]use       // memory: source and destination, or a launch's rows, offsets, scratch and result
	fault string       // reason why the operation must fail, found when it was enqueued; or empty
	shape device.Shape // shape of a launch
	value byte         // byte of a fill
	event *Event       // event of a record
	point mark         // mark that a wait waits for
	pool  *Pool        // pool of a free
	freed use          // memory of a free
	next  *Op          // the stream's next operation
}

// use is memory that an operation reads or writes.
type use struct {
	mem  []byte
	life *life // nil for host memory that the device did not allocate
}

// mark is a point in a stream, the end of an operation. The zero mark refers to no point.
type mark struct {
	stream *Stream
	seq    uint64
}

// passed reports whether the stream has reached m, by finishing the operation. It returns true for the zero mark. The
// caller holds the lock.
func (m mark) passed() bool { return m.stream == nil || m.stream.done >= m.seq }

// writes reports whether the operation writes the memory of uses[i].
func (o *Op) writes(i int) bool { return i >= 2 || i == 1 && o.Kind != Launch }

// Blocked reports whether o is a wait or a gate that must not end yet. The Clock calls it for the first operation of a
// stream, with the lock held.
func (o *Op) Blocked() bool {
	return o.Kind == Wait && !o.point.passed() || o.Kind == Gate && !o.Gate.Opened
}

// Awaits returns the stream whose changes can unblock o.
func (o *Op) Awaits() *Stream {
	if o.Kind == Wait {
		return o.point.stream
	}
	return o.Stream
}

// Do moves the bytes of a copy or a fill, or runs the kernel of a launch. The Clock calls it once for each operation,
// with or without the lock. If Do fails, the Clock must call Device.Lose.
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

// Finish takes o from its queue and marks it as done for events, pools and waiting calls. The Clock calls Finish with
// the lock held, and must not use o afterwards.
func (d *Device) Finish(o *Op) {
	s := o.Stream
	if !d.Lost() { // a lost device's queues are empty
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

// Clock decides when the operations of a device run, and defines the device's time. It runs the operations of each
// stream in order. Once Op.Blocked returns false for the operation at Stream.Head, it calls Op.Do and then
// Device.Finish, or Device.Lose if Do failed. It passes the token of each notification to Device.Complete. The device
// calls all methods except Stop with its lock held.
type Clock interface {
	// Now returns the time since the device's epoch.
	Now() time.Duration

	// Started is called for each new stream.
	Started(s *Stream)

	// Admit returns nil once s has space for another operation. It returns an error if s can't accept another
	// operation. It may release the lock while it waits.
	Admit(s *Stream) error

	// Enqueued is called when o has become the last operation of its stream.
	Enqueued(o *Op)

	// Opened is called when the caller has opened a gate.
	Opened()

	// Polled is called when the caller polls an event.
	Polled()

	// Step moves a virtual clock to the next instant at which an operation ends. It returns false if the caller must
	// wait until another goroutine has changed the state. A clock of real time always returns false.
	Step(w Waiter) bool

	// Lost is called when the device was lost, after the queues of all streams have been emptied.
	Lost()

	// Stop returns once the clock has no goroutine left. Before the call, all streams are closed and their operations
	// are done.
	Stop()
}

// Waiter is the kind of a waiting call.
type Waiter uint8

const (
	ForStream     Waiter = iota + 1 // Stream.Synchronize, and Close
	ForEvent                        // Event.Synchronize
	ForCompletion                   // Device.WaitCompletion
)
