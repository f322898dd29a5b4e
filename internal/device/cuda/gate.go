//go:build cgo

package cuda

import "millrace/internal/device"

// Gate implements device.Gater with a kernel that waits for a flag in pinned memory.
func (d *gpu) Gate(s device.Stream) (open func(), err error) {
	const op = "gate"
	own, err := d.streamOf(op, s)
	if err != nil {
		return nil, err
	}
	err = own.call(op, func() error {
		ticket, err := d.lib.gateEnqueue(own.handle)
		open = func() { d.openGate(ticket) }
		return err
	})
	if err != nil {
		return nil, err
	}
	return open, nil
}

// openGate opens a gate. It also works while Close waits for the gate's stream.
func (d *gpu) openGate(ticket uint64) {
	d.gateMu.Lock()
	defer d.gateMu.Unlock()
	if !d.gatesGone {
		d.lib.gateOpen(d.handle, ticket)
	}
}

// Range implements device.Ranger with an NVTX range. Names are truncated to 127 bytes.
func (d *gpu) Range(name string) (end func()) {
	id := d.lib.rangeStart(name)
	return func() { d.lib.rangeEnd(id) }
}
