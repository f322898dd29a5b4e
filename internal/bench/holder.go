package bench

import (
	"errors"

	"millrace/internal/device"
)

// holder takes streams and memory from a device, and gives all of them back in close. After a failure err is set, and every
// further call returns a zero value.
type holder struct {
	dev  device.Device
	err  error
	undo []func() error // in the order of the calls
}

// hold returns what taking gives, which close gives back with giveBack.
func hold[T any](h *holder, take func() (T, error), giveBack func(T) error) (taken T) {
	if h.err != nil {
		return taken
	}
	if taken, h.err = take(); h.err == nil {
		h.undo = append(h.undo, func() error { return giveBack(taken) })
	}
	return taken
}

// stream returns a new stream.
func (h *holder) stream(name string) device.Stream {
	return hold(h, func() (device.Stream, error) { return h.dev.NewStream(name) }, device.Stream.Close)
}

// pinned returns host memory for copies.
func (h *holder) pinned(bytes int) device.HostBuffer {
	return hold(h, func() (device.HostBuffer, error) { return h.dev.AllocHost(bytes) }, h.dev.FreeHost)
}

// memory returns memory of the device.
func (h *holder) memory(bytes int) device.Memory {
	return hold(h, func() (device.Memory, error) { return h.dev.Alloc(bytes) }, h.dev.Free)
}

// close gives everything back, the last thing first.
func (h *holder) close() error {
	var errs []error
	for i := len(h.undo) - 1; i >= 0; i-- {
		errs = append(errs, h.undo[i]())
	}
	h.undo = nil
	return errors.Join(errs...)
}
