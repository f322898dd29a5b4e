package host

import (
	"errors"

	"millrace/internal/device"
)

// fault loses the device permanently and keeps the first fault. Streams discard their queued operations, and all waits
// for them return.
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

// misuse returns err. With the invariants tag, an invalid argument panics, because only a bug in the caller can cause
// it.
func misuse(err error) error {
	if device.Invariants && errors.Is(err, device.ErrInvalid) {
		panic(err)
	}
	return err
}
