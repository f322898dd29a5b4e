//go:build cgo

package cuda

import (
	"context"
	"errors"
	"time"

	"millrace/internal/device"
)

// kernelFaults holds the CUDA error codes of losses that a kernel caused or may have caused. A payload can cause only
// these losses. The library has one status for all losses, because a status defines the caller's next step.
// testdata/codes.txt names every code.
var kernelFaults = map[int]bool{
	700: true, // illegal address
	702: true, // launch timeout: a kernel ran longer than the GPU's watchdog permits
	710: true, // assert
	714: true, // hardware stack error
	715: true, // illegal instruction
	716: true, // misaligned address
	717: true, // invalid address space
	718: true, // invalid program counter
	719: true, // launch failure
}

// handlesAlone holds the calls that take only handles, by their names in the library's errors. Go has checked the
// handles, so no payload can make CUDA refuse such a call. A refusal means that the device has lost its state.
var handlesAlone = map[string]bool{
	"record": true, "wait": true, "notify": true, "query event": true, "await event": true, opEventTime: true,
	"synchronize": true, "pool free": true, opUnload: true,
}

// checked converts an error of the library and records a loss. On an open device, some errors of CUDA can only mean
// that the device is lost. After other errors, except lack of memory, checked polls the device check once. Before you
// attribute an error to a payload, call Check, which waits for the answer.
func (g *gpu) checked(err error) error {
	if err == nil {
		return nil
	}
	var e *device.Error
	if !errors.As(err, &e) || e.Device != "" { // the device itself made or converted the error
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

// doubted returns e, or a loss of the device if e or the device check indicates one.
func (g *gpu) doubted(e *device.Error) *device.Error {
	switch {
	case errors.Is(e, device.ErrLost), errors.Is(e, device.ErrOutOfMemory), errors.Is(e, device.ErrNotReady) && e.Op == opEventTime:
		return e
	case errors.Is(e, device.ErrUnavailable), errors.Is(e, device.ErrNotFound), errors.Is(e, device.ErrNotReady), handlesAlone[e.Op]:
		// The device existed before, so it is gone now. Only a query can return "not ready" on a working device.
		return &device.Error{Op: e.Op, Device: e.Device, Kind: device.ErrLost, Code: e.Code, Detail: e.Detail}
	}
	var lost *device.Error
	if _, err := g.lib.deviceCheck(g.handle); err == nil || !errors.As(err, &lost) {
		return e
	}
	return &device.Error{Op: e.Op, Device: e.Device, Kind: lost.Kind, Code: lost.Code, Detail: e.Detail + ", and then " + lost.Detail}
}

// lose records the loss of the device. It keeps only the first loss.
func (g *gpu) lose(e *device.Error) {
	if g.lost.CompareAndSwap(nil, e) {
		g.waiter.wake() // the waiter's completion might never arrive
	}
}

// firstPause and longestPause bound the pause between two polls of a check. The pause doubles after each poll.
const (
	firstPause   = 20 * time.Microsecond
	longestPause = 10 * time.Millisecond
)

// Check implements device.Device. It returns when ctx ends, even if the driver doesn't return from a call, because a
// separate goroutine makes the call.
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

// awaitAnswers waits for two answers, because the device may have started on the first answer before the failure that
// led to the check.
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

// pollFault checks once whether the device has had a fault, and records a loss. It uses a separate goroutine, because
// the call might not return from a hung driver. Only one such call runs at a time. A device that doesn't answer may be
// busy.
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
