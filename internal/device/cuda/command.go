//go:build cgo

package cuda

import (
	"fmt"
	"unsafe"

	"millrace/internal/device"
)

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
	if cmd.Kind == device.DoCopyIn {
		c.copyIn(s.handle, cmd.Memory.Addr, host, bytes)
	} else {
		c.copyOut(s.handle, host, cmd.Memory.Addr, bytes)
	}
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
	if cmd.Kind == device.DoRecord {
		e.recorded.Store(true)
		c.record(s.handle, e.handle)
		return nil
	}
	if device.Invariants && !e.recorded.Load() {
		panic("cuda: stream " + s.name + " waits for an event that was never recorded, which holds nothing up")
	}
	c.wait(s.handle, e.handle)
	return nil
}
