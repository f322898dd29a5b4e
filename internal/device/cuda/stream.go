//go:build cgo

package cuda

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"millrace/internal/device"
)

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

// The methods that enqueue work are lists of one command each: see Enqueue.

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

// event is a CUDA event.
type event struct {
	object
	handle   eventHandle
	timed    bool
	recorded atomic.Bool
}

// NewEvent implements device.Device.
func (d *gpu) NewEvent(flags device.EventFlags) (device.Event, error) {
	e := &event{timed: flags&device.Timed != 0}
	err := d.call("new event", func() (err error) {
		if e.handle, err = d.lib.eventCreate(d.handle, flags); err == nil {
			d.add(&e.object, "event", 0, func() error { return d.lib.eventDestroy(e.handle) })
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// eventOf returns e as an event of this device.
func (d *gpu) eventOf(op string, e device.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok || own == nil || own.d != d {
		return nil, d.errorf(op, device.ErrInvalid, "an event that this device did not make")
	}
	return own, nil
}

// Done implements device.Event.
func (e *event) Done() (done bool, err error) {
	err = e.call("event done", func() (err error) {
		done, err = e.d.lib.eventReached(e.handle)
		return err
	})
	return done, err
}

// Synchronize implements device.Event. A concurrent Close of the event waits for it.
func (e *event) Synchronize() error {
	return e.call("await event", func() error { return e.d.lib.eventSynchronize(e.handle) })
}

// opEventTime is the call for which CUDA's "not ready" is a valid answer.
const opEventTime = "event time"

// Time implements device.Event.
func (e *event) Time() (at time.Duration, err error) {
	const op = opEventTime
	err = e.call(op, func() (err error) {
		switch {
		case !e.timed:
			return e.d.errorf(op, device.ErrInvalid, "the event was made without timing")
		case !e.recorded.Load():
			return e.d.errorf(op, device.ErrInvalid, "the event was never recorded")
		}
		at, err = e.d.clock.timeOf(e.d, e.handle)
		return err
	})
	return at, err
}

// Close implements device.Event.
func (e *event) Close() error { return e.close("close event", e.free) }

// Gate implements device.Gater with a kernel that waits for a flag in pinned memory.
func (d *gpu) Gate(s device.Stream) (open func(), err error) {
	const op = "gate"
	own, err := d.streamOf(op, s)
	if err != nil {
		return nil, err
	}
	err = own.call(op, func() error {
		ticket, err := d.lib.gateEnqueue(own.handle)
		open = func() { d.openGate(ticket) }
		return err
	})
	if err != nil {
		return nil, err
	}
	return open, nil
}

// openGate opens a gate. It also works while Close waits for the gate's stream.
func (d *gpu) openGate(ticket uint64) {
	d.gateMu.Lock()
	defer d.gateMu.Unlock()
	if !d.gatesGone {
		d.lib.gateOpen(d.handle, ticket)
	}
}

// Range implements device.Ranger with an NVTX range. Names are truncated to 127 bytes.
func (d *gpu) Range(name string) (end func()) {
	id := d.lib.rangeStart(name)
	return func() { d.lib.rangeEnd(id) }
}

// Enqueue implements device.Device. It makes one call into C for each list of up to maxCommands commands.
func (d *gpu) Enqueue(list []device.Command) error {
	if err := d.beginCall("enqueue"); err != nil {
		return err
	}
	defer d.release()
	d.enqueuing.RLock()
	defer d.enqueuing.RUnlock()
	for len(list) > 0 {
		part := list[:min(len(list), maxCommands)]
		if err := d.enqueue(part); err != nil {
			return err
		}
		list = list[len(part):]
	}
	return nil
}

// enqueue carries out at most maxCommands commands. If it refuses one itself, it still carries out those before it.
func (d *gpu) enqueue(list []device.Command) error {
	var c commands
	var refused error
	for i := range list {
		if refused = d.translate(&c, &list[i]); refused != nil {
			break
		}
	}
	d.waiter.outstanding.Add(int64(c.notifiesFrom(0))) // before a token can come back
	done, err := d.lib.enqueue(&c)
	if err != nil {
		d.waiter.outstanding.Add(int64(-c.notifiesFrom(done)))
		return d.checked(err)
	}
	return refused
}

// translate checks a command and adds it to c, unless the command is no work.
func (d *gpu) translate(c *commands, cmd *device.Command) error {
	op := cmd.Kind.String()
	s, err := d.streamOf(op, cmd.Stream)
	if err != nil {
		return err
	}
	if s.closed.Load() {
		return d.errClosed(op, "stream "+s.name)
	}
	switch cmd.Kind {
	case device.DoCopyIn, device.DoCopyOut:
		return d.translateCopy(c, s, cmd)
	case device.DoFill:
		if cmd.Memory.Bytes < 0 {
			return d.errorf(op, device.ErrInvalid, "%d bytes", cmd.Memory.Bytes)
		}
		if cmd.Memory.Bytes > 0 {
			c.fill(s.handle, cmd.Memory.Addr, byte(cmd.Value), cmd.Memory.Bytes)
		}
	case device.DoLaunch:
		return d.translateLaunch(c, s, cmd)
	case device.DoRecord, device.DoWait:
		return d.translateEvent(c, s, cmd)
	case device.DoNotify:
		c.notify(s.handle, cmd.Value)
	default:
		panic(fmt.Sprintf("cuda: there is no command %d", cmd.Kind))
	}
	return nil
}

// translateCopy refuses a copy that doesn't fit, and one with memory that is not pinned. Such memory could be Go's,
// which C must not keep, and the copy would not be asynchronous.
func (d *gpu) translateCopy(c *commands, s *stream, cmd *device.Command) error {
	bytes, room := cmd.Host.Len(), cmd.Memory.Bytes
	if cmd.Kind == device.DoCopyOut {
		bytes, room = room, bytes
	}
	if bytes < 0 || bytes > room {
		return d.errorf(cmd.Kind.String(), device.ErrInvalid, "%d bytes into %d", bytes, room)
	}
	if bytes == 0 {
		return nil
	}
	if cmd.Host.Kind() != device.Pinned {
		return d.errorf(cmd.Kind.String(), device.ErrInvalid, "a host buffer that is not pinned: use one of AllocHost")
	}
	host := unsafe.Pointer(unsafe.SliceData(cmd.Host.Raw()))
	c.copy(cmd.Kind, s.handle, host, cmd.Memory.Addr, bytes)
	return nil
}

func (d *gpu) translateLaunch(c *commands, s *stream, cmd *device.Command) error {
	k, ok := cmd.Kernel.(*kernel)
	if !ok || k == nil || k.d != d {
		return d.errorf("launch", device.ErrInvalid, "a kernel that this device did not make")
	}
	if k.closed.Load() {
		return d.errClosed("launch", "kernel "+k.name)
	}
	if err := k.checkLaunch(cmd.Args); err != nil {
		return err
	}
	c.launch(s.handle, k.op, k.instance, cmd.Args)
	return nil
}

func (d *gpu) translateEvent(c *commands, s *stream, cmd *device.Command) error {
	op := cmd.Kind.String()
	e, err := d.eventOf(op, cmd.Event)
	if err != nil {
		return err
	}
	if e.closed.Load() {
		return d.errClosed(op, "event")
	}
	switch {
	case cmd.Kind == device.DoRecord:
		e.recorded.Store(true)
	case device.Invariants && !e.recorded.Load():
		panic("cuda: stream " + s.name + " waits for an event that was never recorded, which holds nothing up")
	}
	c.event(cmd.Kind, s.handle, e.handle)
	return nil
}
