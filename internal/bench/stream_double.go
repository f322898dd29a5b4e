package bench

import (
	"sync"

	"millrace/internal/device"
)

// defaultStreamer is a device with CUDA's default streams.
type defaultStreamer interface {
	DefaultStream(name string, perThread bool) (device.Stream, error)
}

// onDefaultStreams is a device on which all streams are default streams: either the legacy one, which is one queue for
// all, or the submitting thread's own, in which case the goroutine must be locked to its thread. A device without
// default streams uses one stream instead of the legacy one, and ordinary streams instead of the others.
type onDefaultStreams struct {
	below
	perThread bool

	mu   sync.Mutex
	only device.Stream // replaces the legacy default stream; nil if the device has one, and before the first call of NewStream
	turn sync.Mutex    // keeps the work of two batches from interleaving on the legacy default stream
}

// NewStream implements device.Device.
func (d *onDefaultStreams) NewStream(name string) (device.Stream, error) {
	if cuda, ok := d.Device.(defaultStreamer); ok {
		return cuda.DefaultStream(name, d.perThread)
	}
	if i := d.Info(); i.Kind == "cuda" {
		return nil, device.Errorf("default stream", i.ID, device.ErrUnavailable, "this build of the device has none")
	}
	if d.perThread {
		return d.Device.NewStream(name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if d.only == nil {
		d.only, err = d.Device.NewStream(name)
	}
	return d.only, err
}

// Enqueue implements device.Device.
func (d *onDefaultStreams) Enqueue(commands []device.Command) error {
	if !d.perThread {
		d.turn.Lock()
		defer d.turn.Unlock()
	}
	return d.Device.Enqueue(commands)
}
