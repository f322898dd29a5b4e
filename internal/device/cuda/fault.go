//go:build cgo

package cuda

import (
	"errors"

	"millrace/internal/device"
)

// kernelFaults are the codes of CUDA, among those that lose the device, by which it reports what a kernel did or may
// have done: only these losses may be a payload's fault. They are told apart here and not by the library, whose statuses
// say what can be done next, which is the same for all losses. testdata/codes.txt names every code.
var kernelFaults = map[int]bool{
	700: true, // illegal address
	702: true, // launch timeout: a kernel ran longer than the GPU's watchdog allows
	710: true, // assert
	714: true, // hardware stack error
	715: true, // illegal instruction
	716: true, // misaligned address
	717: true, // invalid address space
	718: true, // invalid program counter
	719: true, // launch failure
}

// handlesAlone are the calls, as the library's errors name them, that take nothing but handles, which Go has checked: no
// payload can make CUDA refuse them, so a refusal means that the device no longer knows what it has given out.
var handlesAlone = map[string]bool{
	"record": true, "wait": true, "notify": true, "query event": true, "await event": true, opEventTime: true,
	"synchronize": true, "pool free": true,
}

// checked completes an error of the library and notes a loss. Errors of CUDA itself, but those of want of memory, are
// doubted: on an open device some kinds can only mean that it is gone, and for the others the device is asked. Who
// blames somebody for the error calls Check before that, which waits for the answer.
func (d *gpu) checked(err error) error {
	if err == nil {
		return nil
	}
	var e *device.Error
	if !errors.As(err, &e) {
		return err
	}
	e.Device = d.info.ID
	if d.opened.Load() && e.Code != 0 {
		e = d.doubted(e)
	}
	if errors.Is(e, device.ErrLost) {
		d.lose(e)
	}
	return e
}

// doubted is e as what it means on an open device.
func (d *gpu) doubted(e *device.Error) *device.Error {
	switch {
	case errors.Is(e, device.ErrLost), errors.Is(e, device.ErrOutOfMemory), errors.Is(e, device.ErrNotReady) && e.Op == opEventTime:
		return e
	case errors.Is(e, device.ErrUnavailable), errors.Is(e, device.ErrNotFound), errors.Is(e, device.ErrNotReady), handlesAlone[e.Op]:
		// The device was there and is not any more; and no call but a query can have nothing to answer yet.
		return &device.Error{Op: e.Op, Device: e.Device, Kind: device.ErrLost, Code: e.Code, Detail: e.Detail}
	}
	var lost *device.Error
	if _, err := d.lib.deviceCheck(d.handle); err == nil || !errors.As(err, &lost) {
		return e
	}
	return &device.Error{Op: e.Op, Device: e.Device, Kind: lost.Kind, Code: lost.Code, Detail: e.Detail + ", and then " + lost.Detail}
}

// lose notes that the device is lost. The first loss is the one that is kept.
func (d *gpu) lose(e *device.Error) {
	if d.lost.CompareAndSwap(nil, e) {
		d.waiter.wake() // what it waits for may never come
	}
}
