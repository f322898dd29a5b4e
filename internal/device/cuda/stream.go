//go:build cgo

package cuda

import "millrace/internal/device"

// stream is a CUDA stream that doesn't synchronize with any other stream.
type stream struct {
	object
	name   string
	handle streamHandle
}

// NewStream implements device.Device.
func (d *gpu) NewStream(name string) (device.Stream, error) {
	return d.newStream("new stream", name, func() (streamHandle, error) { return d.lib.streamCreate(d.handle) })
}

// DefaultStream returns one of CUDA's default streams: the per-thread stream of the thread that calls its methods, or
// the legacy stream, which synchronizes with all streams except those that NewStream created. `worker bench` shows what
// they cost; nothing else uses them.
func (d *gpu) DefaultStream(name string, perThread bool) (device.Stream, error) {
	return d.newStream("default stream", name, func() (streamHandle, error) { return d.lib.streamDefault(d.handle, perThread) })
}

func (d *gpu) newStream(op, name string, create func() (streamHandle, error)) (device.Stream, error) {
	s := &stream{name: name}
	err := d.call(op, func() (err error) {
		if s.handle, err = create(); err == nil {
			s.await = func() error { return d.lib.streamSynchronize(s.handle) }
			d.add(&s.object, "stream "+name, 2, func() error { return d.lib.streamDestroy(s.handle) })
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
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

func (s *stream) Synchronize() error { return s.call("synchronize", s.await) }

// Close implements device.Stream.
func (s *stream) Close() error {
	return s.close("close stream", func() error {
		synchronized := s.d.checked(s.await())
		if s.d.Err() != nil {
			return synchronized
		}
		if err := s.free(); err != nil {
			return err
		}
		return synchronized
	})
}
