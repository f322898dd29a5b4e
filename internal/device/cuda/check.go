//go:build cgo

package cuda

import (
	"context"
	"time"

	"millrace/internal/device"
)

// firstLook and longestLook are how long a check naps between two looks at the answer: it doubles from one to the other.
const (
	firstLook   = 20 * time.Microsecond
	longestLook = 10 * time.Millisecond
)

// Check implements device.Device. It returns with ctx also where the driver does not return from a call: that is left
// to a goroutine.
func (d *gpu) Check(ctx context.Context) error {
	const op = "check"
	if err := d.enter(op); err != nil {
		return err
	}
	answered := make(chan error, 1)
	go func() {
		defer d.release()
		answered <- d.ask(ctx)
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return d.unanswered(ctx)
	}
}

// ask waits for two answers: the question of the first may have been pending since before the failure that is asked
// about.
func (d *gpu) ask(ctx context.Context) error {
	look := time.NewTimer(0)
	defer look.Stop()
	nap := firstLook
	for answers := 0; answers < 2; {
		select {
		case <-look.C:
		case <-ctx.Done():
			return d.unanswered(ctx)
		}
		answered, err := d.lib.deviceCheck(d.handle)
		switch {
		case err != nil:
			return d.checked(err)
		case answered:
			answers++
			look.Reset(0)
		default:
			look.Reset(nap)
			nap = min(2*nap, longestLook)
		}
	}
	return nil
}

func (d *gpu) unanswered(ctx context.Context) error {
	return d.errorf("check", device.ErrNotReady, "the device has not answered in time: %v", ctx.Err())
}

// glance looks once whether the device has had a fault, on a goroutine of its own: in a driver that hangs the call may
// not come back. One is under way at a time. A loss is noted; a device that has not answered may be busy.
func (d *gpu) glance() {
	if !d.glancing.CompareAndSwap(false, true) {
		return
	}
	if !d.hold() {
		return
	}
	go func() {
		defer d.release()
		defer d.glancing.Store(false)
		_, err := d.lib.deviceCheck(d.handle)
		_ = d.checked(err)
	}()
}
