//go:build cgo

package cuda

import (
	"sync"
	"sync/atomic"

	"millrace/internal/device"
)

// stream is a CUDA stream that doesn't synchronize with any other stream.
type stream struct {
	d      *gpu
	name   string
	handle streamHandle

	mu     sync.RWMutex // held for reading by calls other than Enqueue, and for writing by Close
	closed atomic.Bool
}

// NewStream implements device.Device.
func (d *gpu) NewStream(name string) (device.Stream, error) {
	if err := d.beginCall("new stream"); err != nil {
		return nil, err
	}
	defer d.release()
	return d.keepStream(name)(d.lib.streamCreate(d.handle))
}

// DefaultStream returns one of CUDA's default streams: the per-thread stream of the thread that calls its methods, or
// the legacy stream, which synchronizes with all streams except those that NewStream created. `worker bench` shows what
// they cost; nothing else uses them.
func (d *gpu) DefaultStream(name string, perThread bool) (device.Stream, error) {
	if err := d.beginCall("default stream"); err != nil {
		return nil, err
	}
	defer d.release()
	return d.keepStream(name)(d.lib.streamDefault(d.handle, perThread))
}

func (d *gpu) keepStream(name string) func(streamHandle, error) (device.Stream, error) {
	return func(handle streamHandle, err error) (device.Stream, error) {
		if err != nil {
			return nil, d.checked(err)
		}
		s := &stream{d: d, name: name, handle: handle}
		d.add(s)
		return s, nil
	}
}

// beginCall begins a call. It fails if the stream or the device is closed, or if the device is lost.
func (s *stream) beginCall(op string) error {
	if err := s.d.beginCall(op); err != nil {
		return err
	}
	s.mu.RLock()
	if s.closed.Load() {
		s.leave()
		return s.d.errClosed(op, "stream "+s.name)
	}
	return nil
}

func (s *stream) leave() {
	s.mu.RUnlock()
	s.d.release()
}

// streamOf returns s as a stream of this device.
func (d *gpu) streamOf(op string, s device.Stream) (*stream, error) {
	own, ok := s.(*stream)
	if !ok || own == nil || own.d != d {
		return nil, d.errorf(op, device.ErrInvalid, "a stream that this device did not make")
	}
	return own, nil
}

func (s *stream) Name() string { return s.name }

// The methods that enqueue work are lists of one command each: see command.go.

func (s *stream) CopyIn(dst device.Memory, src device.HostBuffer) error {
	return s.enqueue(device.Command{Kind: device.DoCopyIn, Memory: dst, Host: src})
}

func (s *stream) CopyOut(dst device.HostBuffer, src device.Memory) error {
	return s.enqueue(device.Command{Kind: device.DoCopyOut, Host: dst, Memory: src})
}

func (s *stream) Fill(dst device.Memory, value byte) error {
	return s.enqueue(device.Command{Kind: device.DoFill, Memory: dst, Value: uint64(value)})
}

func (s *stream) Launch(k device.Kernel, args device.LaunchArgs) error {
	return s.enqueue(device.Command{Kind: device.DoLaunch, Kernel: k, Args: &args})
}

func (s *stream) Record(e device.Event) error {
	return s.enqueue(device.Command{Kind: device.DoRecord, Event: e})
}

func (s *stream) Wait(e device.Event) error {
	return s.enqueue(device.Command{Kind: device.DoWait, Event: e})
}

func (s *stream) Notify(token uint64) error {
	return s.enqueue(device.Command{Kind: device.DoNotify, Value: token})
}

func (s *stream) enqueue(c device.Command) error {
	c.Stream = s
	return s.d.Enqueue([]device.Command{c})
}

func (s *stream) Synchronize() error {
	if err := s.beginCall("synchronize"); err != nil {
		return err
	}
	defer s.leave()
	return s.d.checked(s.d.lib.streamSynchronize(s.handle))
}

// Close implements device.Stream.
func (s *stream) Close() error {
	return s.d.closeOnce("close stream", s, &s.mu, &s.closed, func() error {
		synchronized := s.d.checked(s.d.lib.streamSynchronize(s.handle))
		if s.d.Err() != nil {
			return synchronized
		}
		if err := s.free(); err != nil {
			return err
		}
		return synchronized
	})
}

func (s *stream) describe() string { return "stream " + s.name }
func (s *stream) free() error      { return s.d.lib.streamDestroy(s.handle) }
func (s *stream) stage() int       { return 2 }
