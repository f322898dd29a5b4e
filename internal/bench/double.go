package bench

import "millrace/internal/device"

// below is the device that a double wraps. A double differs from it only in the property that a row measures, and its
// pipeline is the worker's.
type below struct{ device.Device }

// Map implements device.Mapper, which every measured device implements.
func (d below) Map(b device.HostBuffer) (device.Memory, error) {
	m, ok := d.Device.(device.Mapper)
	if !ok {
		return device.Memory{}, device.Errorf("map", d.Info().ID, device.ErrUnavailable, "its kernels do not reach host memory")
	}
	return m.Map(b)
}
