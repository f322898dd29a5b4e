package sim

import (
	"slices"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

// Stream is a queue of operations. It implements device.Stream.
type Stream struct {
	dev    *Device
	name   string
	queue  []*op  // not yet carried out, in order
	issued bool   // the first operation is on an engine, at a gate, or waiting for an event
	last   uint64 // sequence number of the last operation enqueued
	done   uint64 // sequence number of the last operation carried out
	closed bool
}

// NewStream implements device.Device.
func (d *Device) NewStream(name string) (device.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &Stream{dev: d, name: name}
	if err := d.Add("new stream", s); err != nil {
		return nil, err
	}
	d.streams = append(d.streams, s)
	return s, nil
}

// Leak implements software.Object.
func (s *Stream) Leak() string { return "stream " + s.name }

// stream returns s as an open stream of this device. The caller holds the lock.
func (d *Device) stream(call string, s device.Stream) (*Stream, error) {
	mine, ok := s.(*Stream)
	if !ok || mine == nil || mine.dev != d {
		return nil, d.Errorf(call, device.ErrInvalid, "the stream is not of this device")
	}
	return mine, mine.usable(call)
}

// usable returns an error if nothing can be enqueued. The caller holds the lock.
func (s *Stream) usable(call string) error {
	d := s.dev
	if err := d.Usable(call); err != nil {
		return err
	}
	if s.closed {
		return d.Errorf(call, device.ErrClosed, "stream %s was closed", s.name)
	}
	if d.queued+d.promised+len(d.completions) >= maxPending {
		return d.Errorf(call, device.ErrOutOfMemory,
			"%d operations and completions are pending: wait for some before enqueueing more", maxPending)
	}
	return nil
}

// enqueue appends o to the stream. The caller holds the lock.
func (s *Stream) enqueue(o *op) {
	d := s.dev
	d.seq++
	o.seq = d.seq
	o.stream = s
	o.enqueued = d.now
	o.cost = d.cost.duration(o, d.seed)
	s.queue = append(s.queue, o)
	s.last = o.seq
	d.queued++
	d.runnable = append(d.runnable, s)
	d.settle()
	d.wake()
}

// Passed implements software.Stream. The caller holds the lock.
func (s *Stream) Passed(operation uint64) bool { return s.done >= operation }

// Name implements device.Stream.
func (s *Stream) Name() string { return s.name }

// CopyIn implements device.Stream.
func (s *Stream) CopyIn(dst device.Memory, src device.HostBuffer) error {
	return s.transfer(CopyIn, src, src.Len(), dst, dst.Bytes)
}

// CopyOut implements device.Stream.
func (s *Stream) CopyOut(dst device.HostBuffer, src device.Memory) error {
	return s.transfer(CopyOut, dst, src.Bytes, src, dst.Len())
}

// transfer enqueues a copy of n bytes between the starts of host and dev. The parameter room is the size of the
// destination.
func (s *Stream) transfer(kind Kind, host device.HostBuffer, n int, dev device.Memory, room int) error {
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.usable(kind.String()); err != nil {
		return err
	}
	if n < 0 || n > room {
		return d.Errorf(kind.String(), device.ErrInvalid, "%d bytes do not fit in %d", n, room)
	}
	if n == 0 {
		return nil
	}
	hostUse := d.useHost(host, n)
	devUse := d.useDevice(device.Memory{Addr: dev.Addr, Bytes: n})
	to, from := devUse.data, hostUse.data
	if kind == CopyOut {
		to, from = from, to
	}
	s.enqueue(&op{
		kind: kind, bytes: n, uses: []use{hostUse, devUse},
		effect: func() error { copy(to, from); return nil },
	})
	return nil
}

// Fill implements device.Stream.
func (s *Stream) Fill(dst device.Memory, value byte) error {
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.usable("fill"); err != nil {
		return err
	}
	if dst.Bytes < 0 {
		return d.Errorf("fill", device.ErrInvalid, "%d bytes", dst.Bytes)
	}
	if dst.Bytes == 0 {
		return nil
	}
	u := d.useDevice(dst)
	s.enqueue(&op{kind: Fill, bytes: dst.Bytes, uses: []use{u}, effect: func() error { software.Fill(u.data, value); return nil }})
	return nil
}

// Synchronize implements device.Stream. It moves the clock to the end of the stream's work. Gates that nobody has opened by then give
// way, and pools return unused memory to the device.
func (s *Stream) Synchronize() error {
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	return s.synchronize("synchronize")
}

// synchronize implements Synchronize. The caller holds the lock.
func (s *Stream) synchronize(call string) error {
	d := s.dev
	if err := d.Usable(call); err != nil {
		return err
	}
	if s.closed {
		return d.Errorf(call, device.ErrClosed, "stream %s was closed", s.name)
	}
	target := s.last
	d.drive(func() bool { return s.done >= target })
	if err := d.Usable(call); err != nil {
		return err
	}
	d.Space.ReleasePools()
	return nil
}

// Close implements device.Stream. On a lost device it frees the stream and returns ErrLost.
func (s *Stream) Close() error {
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.closed {
		return nil
	}
	err := s.synchronize("close stream")
	s.closed = true
	d.Remove(s)
	d.streams = slices.DeleteFunc(d.streams, func(o *Stream) bool { return o == s })
	return err
}
