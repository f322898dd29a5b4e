package host

import (
	"context"
	"errors"
	"sync"

	"millrace/internal/device"
)

// loss is the fault that lost the device, if one has.
type loss struct {
	mu     sync.Mutex
	err    error
	signal chan struct{} // closed once err is set
}

// Err implements device.Device.
func (d *Device) Err() error {
	d.loss.mu.Lock()
	defer d.loss.mu.Unlock()
	return d.loss.err
}

// Check implements device.Device. Host memory and cores need no probe beyond the loss that is known.
func (d *Device) Check(ctx context.Context) error {
	if err := d.usable("check"); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return device.Errorf("check", d.info.ID, device.ErrNotReady, "no answer in time: %v", ctx.Err())
	}
	return nil
}

// fault loses the device, for good. The first fault is the one that is kept. Streams throw away what they
// have queued, and whoever waits for them returns.
func (d *Device) fault(cause error) {
	d.loss.mu.Lock()
	if d.loss.err != nil {
		d.loss.mu.Unlock()
		return
	}
	d.loss.err = cause
	close(d.loss.signal)
	d.loss.mu.Unlock()

	for _, s := range d.openStreams() {
		s.wake()
	}
}

// lost says whether the device has had a fault, without a lock.
func (d *Device) lost() bool {
	select {
	case <-d.loss.signal:
		return true
	default:
		return false
	}
}

func (d *Device) openStreams() []*stream {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*stream
	for o := range d.open {
		if s, ok := o.(*stream); ok {
			all = append(all, s)
		}
	}
	return all
}

// usable is nil while the device takes calls.
func (d *Device) usable(call string) error {
	if d.closing.Load() {
		return d.errorf(call, device.ErrClosed, "the device was closed")
	}
	if d.lost() {
		return d.Err()
	}
	return nil
}

func (d *Device) errorf(call string, kind error, format string, args ...any) error {
	return device.Errorf(call, d.info.ID, kind, format, args...)
}

// misuse returns err. Under the invariants tag an invalid argument, which can only be a bug of the caller, panics.
func misuse(err error) error {
	if device.Invariants && errors.Is(err, device.ErrInvalid) {
		panic(err)
	}
	return err
}
