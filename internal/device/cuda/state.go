//go:build cgo

package cuda

import "millrace/internal/device"

// NewState implements device.Device.
func (g *gpu) NewState(name string, _ []byte, _ device.StateSize) (device.State, error) {
	return nil, g.errorf("new state", device.ErrNotFound, "no operator with a state is called %q", name)
}

// StateBytes implements device.Device.
func (g *gpu) StateBytes(name string, _ []byte, _ device.StateSize) (int64, error) {
	return 0, g.errorf("state bytes", device.ErrNotFound, "no operator with a state is called %q", name)
}
