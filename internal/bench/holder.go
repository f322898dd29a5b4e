package bench

import (
	"errors"

	"millrace/internal/device"
)

// holder creates streams and allocates memory on a device, and close frees all of them. After a failure err is set, and
// every further call returns a zero value.
type holder struct {
	dev  device.Device
	err  error
	undo []func() error // in the order of the calls
}

// hold returns the result of take. close frees it with giveBack.
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

// pinned returns host memory, for copies.
func (h *holder) pinned(bytes int) device.HostBuffer {
	return hold(h, func() (device.HostBuffer, error) { return h.dev.AllocHost(bytes) }, h.dev.FreeHost)
}

// memory returns device memory.
func (h *holder) memory(bytes int) device.Memory {
	return hold(h, func() (device.Memory, error) { return h.dev.Alloc(bytes) }, h.dev.Free)
}

// close frees everything in reverse order.
func (h *holder) close() error {
	var errs []error
	for i := len(h.undo) - 1; i >= 0; i-- {
		errs = append(errs, h.undo[i]())
	}
	h.undo = nil
	return errors.Join(errs...)
}
