//go:build cgo

package cuda

import (
	"context"
	"errors"
	"time"

	"millrace/internal/device"
)

// kernelFaults are the CUDA error codes that lose the device and report what a kernel did or may have done. Only these
// losses may be caused by a payload. The library doesn't distinguish them: its statuses tell the caller what to do
// next, which is the same for all losses. testdata/codes.txt names every code.
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

// handlesAlone are the calls, by their names in the library's errors, that take only handles, which Go has checked. No
// payload can make CUDA refuse them, so a refusal means that the device has lost its state.
var handlesAlone = map[string]bool{
	"record": true, "wait": true, "notify": true, "query event": true, "await event": true, opEventTime: true,
	"synchronize": true, "pool free": true, opUnload: true,
}

// checked converts an error of the library and records a loss. An error of CUDA itself, other than lack of memory,
// leaves the state of the device in doubt. On an open device some kinds can only mean that the device is gone. For the
// others, checked starts a check of the device. Before blaming a payload for the error, call Check, which waits for the
// answer.
func (g *gpu) checked(err error) error {
	if err == nil {
		return nil
	}
	var e *device.Error
	if !errors.As(err, &e) || e.Device != "" { // made or converted by the device itself
		return err
	}
	e.Device = g.info.ID
	if g.opened.Load() && e.Code != 0 {
		e = g.doubted(e)
	}
	if errors.Is(e, device.ErrLost) {
		g.lose(e)
	}
	return e
}

// doubted returns e with the kind of error that it indicates on an open device.
func (g *gpu) doubted(e *device.Error) *device.Error {
	switch {
	case errors.Is(e, device.ErrLost), errors.Is(e, device.ErrOutOfMemory), errors.Is(e, device.ErrNotReady) && e.Op == opEventTime:
		return e
	case errors.Is(e, device.ErrUnavailable), errors.Is(e, device.ErrNotFound), errors.Is(e, device.ErrNotReady), handlesAlone[e.Op]:
		// The device existed before, so it is gone now. Only a query can be "not ready".
		return &device.Error{Op: e.Op, Device: e.Device, Kind: device.ErrLost, Code: e.Code, Detail: e.Detail}
	}
	var lost *device.Error
	if _, err := g.lib.deviceCheck(g.handle); err == nil || !errors.As(err, &lost) {
		return e
	}
	return &device.Error{Op: e.Op, Device: e.Device, Kind: lost.Kind, Code: lost.Code, Detail: e.Detail + ", and then " + lost.Detail}
}

// lose records that the device is lost. The first loss is kept.
func (g *gpu) lose(e *device.Error) {
	if g.lost.CompareAndSwap(nil, e) {
		g.waiter.wake() // the waiter's completion may never arrive
	}
}

// firstPause and longestPause bound the pauses between two polls of a check. The pause doubles from one to the other.
const (
	firstPause   = 20 * time.Microsecond
	longestPause = 10 * time.Millisecond
)

// Check implements device.Device. It returns when ctx ends even if the driver doesn't return from a call: a goroutine
// makes that call.
func (g *gpu) Check(ctx context.Context) error {
	const op = "check"
	if err := g.beginCall(op); err != nil {
		return err
	}
	answered := make(chan error, 1)
	go func() {
		defer g.release()
		answered <- g.awaitAnswers(ctx)
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return g.unanswered(ctx)
	}
}

// awaitAnswers waits for two answers, because the device may have started on the first one before the failure in
// question.
func (g *gpu) awaitAnswers(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := firstPause
	for answers := 0; answers < 2; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return g.unanswered(ctx)
		}
		answered, err := g.lib.deviceCheck(g.handle)
		switch {
		case err != nil:
			return g.checked(err)
		case answered:
			answers++
			timer.Reset(0)
		default:
			timer.Reset(pause)
			pause = min(2*pause, longestPause)
		}
	}
	return nil
}

func (g *gpu) unanswered(ctx context.Context) error {
	return g.errorf("check", device.ErrNotReady, "the device has not answered in time: %v", ctx.Err())
}

// pollFault checks once whether the device has had a fault. It uses a separate goroutine, because the call may not
// return from a hung driver. Only one such call runs at a time. A loss is recorded. A device that doesn't answer may
// just be busy.
func (g *gpu) pollFault() {
	if !g.pollingFault.CompareAndSwap(false, true) {
		return
	}
	if !g.hold() {
		return
	}
	go func() {
		defer g.release()
		defer g.pollingFault.Store(false)
		_, err := g.lib.deviceCheck(g.handle)
		_ = g.checked(err)
	}()
}
