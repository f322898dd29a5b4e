package bench

import "millrace/internal/device"

// below is the device that a double stands in for. A double differs from it in the one respect that a row is about, and the
// pipeline on it is the worker's.
type below struct{ device.Device }

// Map implements device.Mapper, which every device that is measured does.
func (d below) Map(b device.HostBuffer) (device.Memory, error) {
	m, ok := d.Device.(device.Mapper)
	if !ok {
		return device.Memory{}, device.Errorf("map", d.Info().ID, device.ErrUnavailable, "its kernels do not reach host memory")
	}
	return m.Map(b)
}
