//go:build cgo

package cuda

import (
	"context"
	"time"

	"millrace/internal/device"
)

// firstPause and longestPause bound the pauses between two polls of a check. The pause doubles from one to the other.
const (
	firstPause   = 20 * time.Microsecond
	longestPause = 10 * time.Millisecond
)

// Check implements device.Device. It returns when ctx ends even if the driver doesn't return from a call: a goroutine
// makes that call.
func (d *gpu) Check(ctx context.Context) error {
	const op = "check"
	if err := d.beginCall(op); err != nil {
		return err
	}
	answered := make(chan error, 1)
	go func() {
		defer d.release()
		answered <- d.awaitAnswers(ctx)
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return d.unanswered(ctx)
	}
}

// awaitAnswers waits for two answers, because the device may have started on the first one before the failure in
// question.
func (d *gpu) awaitAnswers(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := firstPause
	for answers := 0; answers < 2; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return d.unanswered(ctx)
		}
		answered, err := d.lib.deviceCheck(d.handle)
		switch {
		case err != nil:
			return d.checked(err)
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

func (d *gpu) unanswered(ctx context.Context) error {
	return d.errorf("check", device.ErrNotReady, "the device has not answered in time: %v", ctx.Err())
}

// pollFault checks once whether the device has had a fault. It uses a separate goroutine, because the call may not
// return from a hung driver. Only one such call runs at a time. A loss is recorded. A device that doesn't answer may
// just be busy.
func (d *gpu) pollFault() {
	if !d.pollingFault.CompareAndSwap(false, true) {
		return
	}
	if !d.hold() {
		return
	}
	go func() {
		defer d.release()
		defer d.pollingFault.Store(false)
		_, err := d.lib.deviceCheck(d.handle)
		_ = d.checked(err)
	}()
}
