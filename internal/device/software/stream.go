package software

import (
	"slices"
	"sync"

	"millrace/internal/device"
)

// Stream is a queue of operations. It implements device.Stream. Operations run in the order in which they were
// enqueued.
type Stream struct {
	dev  *Device
	name string

	head, tail *Op // operations that are not finished
	queued     int // number of operations from head to tail
	last       uint64
	done       uint64    // number of the last finished operation
	changed    sync.Cond // signalled when an operation was enqueued or has finished, a gate was opened, or waits must end
	closed     bool
	order      order // operations that come before the next operation; with the invariants tag only

	offsets []uint32 // offsets table of the running launch
}

// NewStream implements device.Device.
func (d *Device) NewStream(name string) (device.Stream, error) {
	s := &Stream{dev: d, name: name, changed: sync.Cond{L: &d.Mu}}
	if device.Invariants {
		s.order = order{}
	}
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.add("new stream", s); err != nil {
		return nil, err
	}
	d.streams = append(d.streams, s)
	d.clock.Started(s)
	return s, nil
}

// Name returns the name passed to NewStream.
func (s *Stream) Name() string { return s.name }

func (s *Stream) leak() string { return "stream " + s.name }

// Head returns the first unfinished operation, or nil. Only the Clock may call Head, with the lock held.
func (s *Stream) Head() *Op { return s.head }

// Queued returns the number of unfinished operations. Only the Clock may call Queued, with the lock held.
func (s *Stream) Queued() int { return s.queued }

// Accepts reports whether operations may still be enqueued. Only the Clock may call Accepts, with the lock held.
func (s *Stream) Accepts() bool { return !s.closed && !s.dev.Lost() }

// AwaitChange releases the lock until the state of the stream has changed. Only the Clock may call AwaitChange.
func (s *Stream) AwaitChange() { s.changed.Wait() }

// stream returns s as an open stream of this device. It fails if s is closed or belongs to another device. The
// caller holds the lock.
func (d *Device) stream(call string, s device.Stream) (*Stream, error) {
	own, ok := s.(*Stream)
	if !ok || own == nil || own.dev != d {
		return nil, d.errorf(call, device.ErrInvalid, "the stream is not one of this device")
	}
	return own, own.checkUsable(call)
}

// checkUsable returns nil if the stream accepts calls. The caller holds the lock.
func (s *Stream) checkUsable(call string) error { return s.dev.usableObject(call, s, s.closed) }

// admit returns nil once an operation may be enqueued. The caller holds the lock, which admit may release temporarily.
func (s *Stream) admit(call string) error {
	if err := s.checkUsable(call); err != nil {
		return err
	}
	if err := s.dev.clock.Admit(s); err != nil {
		return err
	}
	return s.checkUsable(call)
}

// CopyIn implements device.Stream.
func (s *Stream) CopyIn(dst device.Memory, src device.HostBuffer) error {
	return s.transfer(CopyIn, src, src.Len(), dst, dst.Bytes)
}

// CopyOut implements device.Stream.
func (s *Stream) CopyOut(dst device.HostBuffer, src device.Memory) error {
	return s.transfer(CopyOut, dst, src.Bytes, src, dst.Len())
}

// transfer enqueues a copy of n bytes between the starts of host and mem. room is the size of the destination.
func (s *Stream) transfer(kind Kind, host device.HostBuffer, n int, mem device.Memory, room int) error {
	s.dev.Mu.Lock()
	defer s.dev.Mu.Unlock()
	call := kind.String()
	if err := s.admit(call); err != nil {
		return err
	}
	if n < 0 || n > room {
		return s.dev.errorf(call, device.ErrInvalid, "%d bytes do not fit in %d", n, room)
	}
	if n == 0 {
		return nil
	}
	o := s.op(kind)
	o.Bytes = n
	mem.Bytes = n
	from, to := o.useHost(host.Slice(0, n)), o.use(mem)
	if kind == CopyOut {
		from, to = to, from
	}
	o.uses[0], o.uses[1] = from, to
	s.enqueue(o)
	return nil
}

// Fill implements device.Stream.
func (s *Stream) Fill(dst device.Memory, value byte) error {
	const call = "fill"
	s.dev.Mu.Lock()
	defer s.dev.Mu.Unlock()
	if err := s.admit(call); err != nil {
		return err
	}
	if dst.Bytes < 0 {
		return s.dev.errorf(call, device.ErrInvalid, "%v has a negative length", span(dst))
	}
	if dst.Bytes == 0 {
		return nil
	}
	o := s.op(Fill)
	o.Bytes, o.value = dst.Bytes, value
	o.uses[1] = o.use(dst)
	s.enqueue(o)
	return nil
}

// Launch implements device.Stream. If a kernel fails while it runs, the device is lost, as a GPU is.
func (s *Stream) Launch(k device.Kernel, args device.LaunchArgs) error {
	const call = "launch"
	d := s.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := s.admit(call); err != nil {
		return err
	}
	kernel, args, err := d.checkLaunch(k, args)
	if err != nil {
		return err
	}
	if err := d.inject(call); err != nil {
		return err
	}
	o := s.op(Launch)
	o.Kernel, o.shape, o.Bytes = kernel, args.Shape, args.Shape.Bytes
	o.uses = [4]use{o.useMapped(args.Rows), o.useMapped(args.Offsets), o.use(args.Scratch), o.useMapped(args.Result)}
	s.enqueue(o)
	return nil
}

// Synchronize implements device.Stream. It makes pools release unused memory above their release thresholds.
func (s *Stream) Synchronize() error {
	const call = "synchronize"
	d := s.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := s.checkUsable(call); err != nil {
		return err
	}
	d.await(mark{s, s.last}, ForStream)
	if err := d.Err(); err != nil {
		return err
	}
	d.releasePools()
	return nil
}

// await waits until the stream has reached m or the device is lost. The caller holds the lock.
func (d *Device) await(m mark, w Waiter) {
	for !m.passed() && !d.Lost() {
		if !d.clock.Step(w) {
			m.stream.changed.Wait()
		}
	}
}

// Close implements device.Stream. On a lost device it frees the stream and returns ErrLost.
func (s *Stream) Close() error {
	d := s.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.changed.Broadcast() // also wakes calls that wait for space in the queue
	d.await(mark{s, s.last}, ForStream)
	d.streams = slices.DeleteFunc(d.streams, func(o *Stream) bool { return o == s })
	delete(d.open, s)
	return d.Err()
}
