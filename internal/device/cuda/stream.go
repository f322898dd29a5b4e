//go:build cgo

package cuda

import (
	"sync"
	"unsafe"

	"millrace/internal/device"
)

// stream is a CUDA stream that synchronizes with no other.
type stream struct {
	d      *gpu
	name   string
	handle streamHandle

	mu     sync.RWMutex // held for reading by calls, for writing by Close
	closed bool
}

// NewStream implements device.Device.
func (d *gpu) NewStream(name string) (device.Stream, error) {
	if err := d.enter("new stream"); err != nil {
		return nil, err
	}
	defer d.release()
	handle, err := d.lib.streamCreate(d.handle)
	if err != nil {
		return nil, d.checked(err)
	}
	s := &stream{d: d, name: name, handle: handle}
	d.add(s)
	return s, nil
}

// enter begins a call: it fails if the stream or the device is closed, or the device lost.
func (s *stream) enter(op string) error {
	if err := s.d.enter(op); err != nil {
		return err
	}
	s.mu.RLock()
	if s.closed {
		s.leave()
		return s.d.errClosed(op, "stream "+s.name)
	}
	return nil
}

func (s *stream) leave() {
	s.mu.RUnlock()
	s.d.release()
}

// streamOf is s as a stream of this device.
func (d *gpu) streamOf(op string, s device.Stream) (*stream, error) {
	own, ok := s.(*stream)
	if !ok || own == nil || own.d != d {
		return nil, d.errorf(op, device.ErrInvalid, "a stream that this device did not make")
	}
	return own, nil
}

func (s *stream) Name() string { return s.name }

func (s *stream) CopyIn(dst device.Memory, src device.HostBuffer) error {
	const op = "copy in"
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.leave()
	if err := s.checkCopy(op, dst.Bytes, src.Len(), src); err != nil || src.Len() == 0 {
		return err
	}
	from := unsafe.Pointer(unsafe.SliceData(src.Raw()))
	return s.d.checked(s.d.lib.copyIn(s.handle, dst.Addr, from, src.Len()))
}

func (s *stream) CopyOut(dst device.HostBuffer, src device.Memory) error {
	const op = "copy out"
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.leave()
	if err := s.checkCopy(op, dst.Len(), src.Bytes, dst); err != nil || src.Bytes == 0 {
		return err
	}
	to := unsafe.Pointer(unsafe.SliceData(dst.Raw()))
	return s.d.checked(s.d.lib.copyOut(s.handle, to, src.Addr, src.Bytes))
}

// checkCopy refuses a copy that would not fit, and one with memory that is not pinned: it would be Go's, which C must
// not keep, and the copy would not be asynchronous.
func (s *stream) checkCopy(op string, room, bytes int, host device.HostBuffer) error {
	if bytes < 0 || bytes > room {
		return s.d.errorf(op, device.ErrInvalid, "%d bytes into %d", bytes, room)
	}
	if bytes > 0 && host.Kind() != device.Pinned {
		return s.d.errorf(op, device.ErrInvalid, "a host buffer that is not pinned: use one of AllocHost")
	}
	return nil
}

func (s *stream) Fill(dst device.Memory, value byte) error {
	const op = "fill"
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.leave()
	if dst.Bytes < 0 {
		return s.d.errorf(op, device.ErrInvalid, "%d bytes", dst.Bytes)
	}
	if dst.Bytes == 0 {
		return nil
	}
	return s.d.checked(s.d.lib.fill(s.handle, dst.Addr, value, dst.Bytes))
}

func (s *stream) Launch(k device.Kernel, args device.LaunchArgs) error {
	const op = "launch"
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.leave()
	own, ok := k.(*kernel)
	if !ok || own == nil || own.d != s.d {
		return s.d.errorf(op, device.ErrInvalid, "a kernel that this device did not make")
	}
	return own.launch(s, args)
}

func (s *stream) Record(e device.Event) error {
	const op = "record"
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.leave()
	own, err := s.d.eventOf(op, e)
	if err != nil {
		return err
	}
	return own.recordOn(s)
}

func (s *stream) Wait(e device.Event) error {
	const op = "wait"
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.leave()
	own, err := s.d.eventOf(op, e)
	if err != nil {
		return err
	}
	return own.holdUp(s)
}

func (s *stream) Notify(token uint64) error {
	if err := s.enter("notify"); err != nil {
		return err
	}
	defer s.leave()
	s.d.waiter.outstanding.Add(1) // before the token can come back
	err := s.d.checked(s.d.lib.notify(s.handle, token))
	if err != nil {
		s.d.waiter.outstanding.Add(-1)
	}
	return err
}

func (s *stream) Synchronize() error {
	if err := s.enter("synchronize"); err != nil {
		return err
	}
	defer s.leave()
	return s.d.checked(s.d.lib.streamSynchronize(s.handle))
}

// Close implements device.Stream.
func (s *stream) Close() error {
	if !s.d.hold() {
		return nil // the device's Close has given it back
	}
	defer s.d.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.d.remove(s)
	synchronized := s.d.checked(s.d.lib.streamSynchronize(s.handle))
	if err := s.d.checked(s.free()); err != nil {
		return err
	}
	return synchronized
}

func (s *stream) describe() string { return "stream " + s.name }
func (s *stream) free() error      { return s.d.lib.streamDestroy(s.handle) }
func (s *stream) stage() int       { return 2 }
