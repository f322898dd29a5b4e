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
func (g *gpu) NewStream(name string) (device.Stream, error) {
	return g.newStream("new stream", name, func() (streamHandle, error) { return g.lib.streamCreate(g.handle) })
}

// DefaultStream returns one of CUDA's default streams. With perThread, it is the stream of the thread that calls the
// stream's methods. Otherwise it is the legacy stream, which synchronizes with all streams except the streams of
// NewStream. Only `worker bench` uses default streams, to show their cost.
func (g *gpu) DefaultStream(name string, perThread bool) (device.Stream, error) {
	return g.newStream("default stream", name, func() (streamHandle, error) { return g.lib.streamDefault(g.handle, perThread) })
}

func (g *gpu) newStream(op, name string, create func() (streamHandle, error)) (device.Stream, error) {
	s := &stream{name: name}
	err := g.call(op, func() (err error) {
		if s.handle, err = create(); err == nil {
			s.await = func() error { return g.lib.streamSynchronize(s.handle) }
			g.add(&s.object, "stream "+name, 2, func() error { return g.lib.streamDestroy(s.handle) })
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// streamOf returns s as a stream of this device. It fails if s belongs to another device.
func (g *gpu) streamOf(op string, s device.Stream) (*stream, error) {
	own, ok := s.(*stream)
	if !ok || own == nil || own.d != g {
		return nil, g.errorf(op, device.ErrInvalid, "a stream that this device did not make")
	}
	return own, nil
}

// Each method that enqueues work passes a list of one command to Enqueue.

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

type event struct {
	object
	handle   eventHandle
	timed    bool
	recorded atomic.Bool
}

// NewEvent implements device.Device.
func (g *gpu) NewEvent(flags device.EventFlags) (device.Event, error) {
	e := &event{timed: flags&device.Timed != 0}
	err := g.call("new event", func() (err error) {
		if e.handle, err = g.lib.eventCreate(g.handle, flags); err == nil {
			g.add(&e.object, "event", 0, func() error { return g.lib.eventDestroy(e.handle) })
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// eventOf returns e as an event of this device. It fails if e belongs to another device.
func (g *gpu) eventOf(op string, e device.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok || own == nil || own.d != g {
		return nil, g.errorf(op, device.ErrInvalid, "an event that this device did not make")
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

// Synchronize implements device.Event. A concurrent Close of the event waits until Synchronize returns.
func (e *event) Synchronize() error {
	return e.call("await event", func() error { return e.d.lib.eventSynchronize(e.handle) })
}

// opEventTime is the name of the call that may fail with CUDA's "not ready" on a working device.
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
func (g *gpu) Gate(s device.Stream) (open func(), err error) {
	const op = "gate"
	own, err := g.streamOf(op, s)
	if err != nil {
		return nil, err
	}
	err = own.call(op, func() error {
		ticket, err := g.lib.gateEnqueue(own.handle)
		open = func() { g.openGate(ticket) }
		return err
	})
	if err != nil {
		return nil, err
	}
	return open, nil
}

// openGate opens a gate. It also works while Close waits for the gate's stream.
func (g *gpu) openGate(ticket uint64) {
	g.gateMu.Lock()
	defer g.gateMu.Unlock()
	if !g.gatesGone {
		g.lib.gateOpen(g.handle, ticket)
	}
}

// Range implements device.Ranger with an NVTX range. Names are truncated to 127 bytes.
func (g *gpu) Range(name string) (end func()) {
	id := g.lib.rangeStart(name)
	return func() { g.lib.rangeEnd(id) }
}

// Enqueue implements device.Device. It makes one call into C for up to maxCommands commands.
func (g *gpu) Enqueue(list []device.Command) error {
	if err := g.beginCall("enqueue"); err != nil {
		return err
	}
	defer g.release()
	g.enqueuing.RLock()
	defer g.enqueuing.RUnlock()
	for len(list) > 0 {
		part := list[:min(len(list), maxCommands)]
		if err := g.enqueue(part); err != nil {
			return err
		}
		list = list[len(part):]
	}
	return nil
}

// enqueue carries out at most maxCommands commands. If a check refuses a command, the earlier commands are still
// carried out.
func (g *gpu) enqueue(list []device.Command) error {
	var c commands
	var refused error
	for i := range list {
		if refused = g.translate(&c, &list[i]); refused != nil {
			break
		}
	}
	g.waiter.outstanding.Add(int64(c.notifiesFrom(0))) // counted before a token can arrive
	done, err := g.lib.enqueue(&c)
	if err != nil {
		g.waiter.outstanding.Add(int64(-c.notifiesFrom(done)))
		return g.checked(err)
	}
	return refused
}

// translate checks a command and adds it to c, unless the command has no work.
func (g *gpu) translate(c *commands, cmd *device.Command) error {
	op := cmd.Kind.String()
	s, err := g.streamOf(op, cmd.Stream)
	if err != nil {
		return err
	}
	if s.closed.Load() {
		return g.errClosed(op, "stream "+s.name)
	}
	switch cmd.Kind {
	case device.DoCopyIn, device.DoCopyOut:
		return g.translateCopy(c, s, cmd)
	case device.DoFill:
		if cmd.Memory.Bytes < 0 {
			return g.errorf(op, device.ErrInvalid, "%d bytes", cmd.Memory.Bytes)
		}
		if cmd.Memory.Bytes > 0 {
			c.fill(s.handle, cmd.Memory.Addr, byte(cmd.Value), cmd.Memory.Bytes)
		}
	case device.DoLaunch:
		return g.translateLaunch(c, s, cmd)
	case device.DoRecord, device.DoWait:
		return g.translateEvent(c, s, cmd)
	case device.DoNotify:
		c.notify(s.handle, cmd.Value)
	default:
		panic(fmt.Sprintf("cuda: there is no command %d", cmd.Kind))
	}
	return nil
}

// translateCopy adds a copy to c. It refuses a copy that doesn't fit. It also refuses host memory that isn't pinned:
// the copy would not be asynchronous, and C must not keep Go memory.
func (g *gpu) translateCopy(c *commands, s *stream, cmd *device.Command) error {
	bytes, room := cmd.Host.Len(), cmd.Memory.Bytes
	if cmd.Kind == device.DoCopyOut {
		bytes, room = room, bytes
	}
	if bytes < 0 || bytes > room {
		return g.errorf(cmd.Kind.String(), device.ErrInvalid, "%d bytes into %d", bytes, room)
	}
	if bytes == 0 {
		return nil
	}
	if cmd.Host.Kind() != device.Pinned {
		return g.errorf(cmd.Kind.String(), device.ErrInvalid, "a host buffer that is not pinned: use one of AllocHost")
	}
	host := unsafe.Pointer(unsafe.SliceData(cmd.Host.Raw()))
	c.copy(cmd.Kind, s.handle, host, cmd.Memory.Addr, bytes)
	return nil
}

func (g *gpu) translateLaunch(c *commands, s *stream, cmd *device.Command) error {
	k, ok := cmd.Kernel.(*kernel)
	if !ok || k == nil || k.d != g {
		return g.errorf("launch", device.ErrInvalid, "a kernel that this device did not make")
	}
	if k.closed.Load() {
		return g.errClosed("launch", "kernel "+k.name)
	}
	if err := k.checkLaunch(cmd.Args); err != nil {
		return err
	}
	c.launch(s.handle, k.op, k.instance, cmd.Args)
	return nil
}

func (g *gpu) translateEvent(c *commands, s *stream, cmd *device.Command) error {
	op := cmd.Kind.String()
	e, err := g.eventOf(op, cmd.Event)
	if err != nil {
		return err
	}
	if e.closed.Load() {
		return g.errClosed(op, "event")
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
