package host

import "millrace/internal/device"

// Enqueue implements device.Device.
func (d *Device) Enqueue(commands []device.Command) error { return device.EnqueueEach(commands) }
