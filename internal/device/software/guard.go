package software

import (
	"fmt"
	"maps"

	"millrace/internal/device"
)

// With the invariants tag, a device panics at once on errors that a GPU would report later:
//
//   - access to a host buffer, or FreeHost of it, while a queued copy or an in-place launch uses it
//   - Free or Pool.Free of device memory that an operation uses without being ordered before it
//   - use of memory that was freed or never allocated
//   - two unordered operations on different streams if one writes memory that the other uses
//   - a wait for an event that was never recorded
//
// The operations in the queues show which memory is in use. Vector clocks (see order) show the order of operations.
// Data race detectors use the same structure for threads.

// order is the vector clock of a stream or an event. It maps each stream to the sequence number of the stream's last
// earlier operation. It is nil without the invariants tag.
type order map[*Stream]uint64

// with returns a copy of o that includes m.
func (o order) with(m mark) order {
	more := maps.Clone(o)
	more[m.stream] = m.seq
	return more
}

// mustFollow orders the next operation on s after the latest mark of e. It panics if e has no mark.
func (s *Stream) mustFollow(e *Event) {
	if e.latest.stream == nil {
		panic(fmt.Sprintf("software: stream %s waits for an event that was never recorded: the wait would have no effect", s.name))
	}
	for other, seq := range e.order {
		s.order[other] = max(s.order[other], seq)
	}
}

// mustBeSafe panics if o, which is about to be enqueued, uses memory that doesn't exist. It also panics if an unordered
// operation on another stream uses the same memory and one of the two operations writes it. It overwrites host memory
// that o will write, so that a read before o's completion finds no old result.
func (d *Device) mustBeSafe(o *Op) {
	if o.fault != "" {
		panic("software: " + o.String() + ": " + o.fault)
	}
	for i, next := range o.uses {
		d.eachUse(next.mem, func(queued *Op, at int) {
			if !queued.before(o.Stream) && (queued.writes(at) || o.writes(i)) {
				panic(fmt.Sprintf("software: streams %s and %s use the same memory in no order: record an event and wait for it",
					queued.Stream.name, o.Stream.name))
			}
		})
	}
	for i, next := range o.uses {
		if o.writes(i) && d.buffers.around(next.mem) != nil && !d.inUse(next.mem) {
			fill(next.mem, poison)
		}
	}
}

// before reports whether o ends before the next operation on s starts.
func (o *Op) before(s *Stream) bool { return o.Stream == s || s.order[o.Stream] >= o.Seq }

// mustComeFirst panics if s frees memory while an operation that uses the memory may still run.
func (s *Stream) mustComeFirst(freed []byte) {
	s.dev.eachUse(freed, func(o *Op, _ int) {
		if !o.before(s) {
			panic(fmt.Sprintf("software: stream %s frees memory in use by stream %s", s.name, o.Stream.name))
		}
	})
}

// mustBeUnused panics if a queued operation uses the memory. what describes the access, for the text of the panic.
// mustBeUnused does nothing without the invariants tag.
func (d *Device) mustBeUnused(mem []byte, what string) {
	if !device.Invariants {
		return
	}
	d.eachUse(mem, func(o *Op, _ int) {
		panic(fmt.Sprintf("software: %s before the %v is done: it is in use by stream %s", what, o, o.Stream.name))
	})
}

func (d *Device) inUse(mem []byte) (found bool) {
	d.eachUse(mem, func(*Op, int) { found = true })
	return found
}

// eachUse calls fn for every use of a part of mem by an unfinished operation. The caller holds the lock.
func (d *Device) eachUse(mem []byte, fn func(o *Op, at int)) {
	if len(mem) == 0 {
		return
	}
	for _, s := range d.streams {
		for o := s.head; o != nil; o = o.next {
			for at, u := range o.uses {
				if rangeOf(u.mem).overlaps(rangeOf(mem)) {
					fn(o, at)
				}
			}
		}
	}
}

// guard is the device.Guard of every host buffer of a device.
type guard struct{ dev *Device }

// Access implements device.Guard.
func (g guard) Access(mem []byte) {
	g.dev.Mu.Lock()
	defer g.dev.Mu.Unlock()
	if len(mem) > 0 && g.dev.buffers.around(mem) == nil {
		panic("software: a host buffer is used after FreeHost")
	}
	g.dev.mustBeUnused(mem, "a host buffer is looked at")
}

// mustBeWithin panics if a row is longer than the launch's shape allows. A GPU doesn't detect that.
func (o *Op) mustBeWithin(offsets []uint32) {
	for i, end := range offsets[1:] {
		if length := int64(end - offsets[i]); length > int64(o.shape.Longest) {
			panic(fmt.Sprintf("software: row %d is %d bytes long, but the shape permits at most %d", i, length, o.shape.Longest))
		}
	}
}

func (o *Op) String() string { return o.Kind.String() + " on stream " + o.Stream.name }
