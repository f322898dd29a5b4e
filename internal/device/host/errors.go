package host

import (
	"errors"

	"millrace/internal/device"
)

// fault loses the device, for good. The first fault is the one that is kept. Streams throw away what they
// have queued, and whoever waits for them returns.
func (d *Device) fault(cause *device.Error) {
	if !d.Lose(cause) {
		return
	}
	close(d.faulted)
	for _, s := range d.openStreams() {
		s.wake()
	}
}

func (d *Device) openStreams() (all []*stream) {
	for _, o := range d.Open() {
		if s, ok := o.(*stream); ok {
			all = append(all, s)
		}
	}
	return all
}

// misuse returns err. Under the invariants tag an invalid argument, which can only be a bug of the caller, panics.
func misuse(err error) error {
	if device.Invariants && errors.Is(err, device.ErrInvalid) {
		panic(err)
	}
	return err
}
