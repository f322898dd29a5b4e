package host

import (
	"fmt"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

type opKind uint8

const (
	opCopyIn opKind = iota + 1
	opCopyOut
	opFill
	opLaunch
	opRecord
	opWait
	opNotify
	opFree
	opGate
)

// op is one queued operation. It is a value, so queuing it doesn't allocate.
type op struct {
	kind   opKind
	value  byte              // opFill
	token  uint64            // opNotify
	dst    device.Memory     // opCopyIn, opFill, opFree
	src    device.Memory     // opCopyOut
	host   []byte            // opCopyIn's source, opCopyOut's destination
	event  *event            // opRecord
	wait   mark              // opWait: the mark to wait for
	after  order             // opWait: operations before the mark; with the invariants tag only
	kernel *software.Kernel  // opLaunch
	args   device.LaunchArgs // opLaunch
	gate   *gate             // opGate
}

// run carries out an operation on the stream's goroutine. A failure here loses the device.
func (s *stream) run(o *op) {
	switch o.kind {
	case opCopyIn:
		if mem, ok := s.resolve("copy in", o.dst); ok {
			copy(mem, o.host)
		}
	case opCopyOut:
		if mem, ok := s.resolve("copy out", o.src); ok {
			copy(o.host, mem)
		}
	case opFill:
		if mem, ok := s.resolve("fill", o.dst); ok {
			software.Fill(mem, o.value)
		}
	case opLaunch:
		s.launch(o)
	case opRecord:
		o.event.stamp(s.current())
	case opWait:
		o.wait.stream.await(o.wait.seq)
	case opNotify:
		s.dev.completions.tokens <- o.token // never full: see completions.owed
	case opFree:
		s.poison(o.dst)
	case opGate:
		o.gate.hold(s.dev)
	default:
		panic(fmt.Sprintf("host device: no operation %d", o.kind))
	}
}

// CopyIn implements device.Stream.
func (s *stream) CopyIn(dst device.Memory, src device.HostBuffer) error {
	const call = "copy in"
	if src.Len() > dst.Bytes {
		return s.dev.Errorf(call, device.ErrInvalid, "%d bytes do not fit into %v", src.Len(), software.Span(dst))
	}
	if src.Len() == 0 {
		return s.check(call)
	}
	dst.Bytes = src.Len()
	_, err := s.enqueue(call, &op{kind: opCopyIn, dst: dst, host: src.Raw()})
	return err
}

// CopyOut implements device.Stream.
func (s *stream) CopyOut(dst device.HostBuffer, src device.Memory) error {
	const call = "copy out"
	if src.Bytes < 0 || src.Bytes > dst.Len() {
		return s.dev.Errorf(call, device.ErrInvalid, "%v does not fit into a host buffer of %d bytes", software.Span(src), dst.Len())
	}
	if src.Bytes == 0 {
		return s.check(call)
	}
	_, err := s.enqueue(call, &op{kind: opCopyOut, src: src, host: dst.Raw()[:src.Bytes]})
	return err
}

// Fill implements device.Stream.
func (s *stream) Fill(dst device.Memory, value byte) error {
	const call = "fill"
	if dst.Bytes < 0 {
		return s.dev.Errorf(call, device.ErrInvalid, "%v has a negative length", software.Span(dst))
	}
	if dst.Bytes == 0 {
		return s.check(call)
	}
	_, err := s.enqueue(call, &op{kind: opFill, dst: dst, value: value})
	return err
}

// Record implements device.Stream.
func (s *stream) Record(e device.Event) error {
	const call = "record"
	own, err := s.dev.ownEvent(call, e)
	if err != nil {
		return err
	}
	_, err = s.enqueue(call, &op{kind: opRecord, event: own})
	return err
}

// Wait implements device.Stream. A wait for a mark that has been reached costs nothing.
func (s *stream) Wait(e device.Event) error {
	const call = "wait"
	own, err := s.dev.ownEvent(call, e)
	if err != nil {
		return err
	}
	m, after := own.current()
	if device.Invariants && m.stream == nil {
		panic(fmt.Sprintf("host device: stream %s waits for an event that was never recorded", s.name))
	}
	if m.stream == s || m.reached() {
		return s.check(call)
	}
	_, err = s.enqueue(call, &op{kind: opWait, wait: m, after: after})
	return err
}

// ownEvent returns e if it is an open event of this device.
func (d *Device) ownEvent(call string, e device.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok || own == nil || own.dev != d {
		return nil, d.Errorf(call, device.ErrInvalid, "the event is not one of this device")
	}
	return own, own.usable(call)
}

// Notify implements device.Stream. It fails with ErrOutOfMemory while 65,536 completions are outstanding.
func (s *stream) Notify(token uint64) error {
	const call = "notify"
	if !s.dev.completions.reserve() {
		return s.dev.Errorf(call, device.ErrOutOfMemory,
			"%d completions have not been waited for: call WaitCompletion", maxCompletions)
	}
	_, err := s.enqueue(call, &op{kind: opNotify, token: token})
	if err != nil {
		s.dev.completions.cancel()
	}
	return err
}
