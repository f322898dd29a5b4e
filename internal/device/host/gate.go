package host

import (
	"sync"
	"time"

	"millrace/internal/device"
)

// gateLimit is the time after which a gate that nobody opens gives way.
const gateLimit = 10 * time.Second

// gate holds a stream until it is opened.
type gate struct{ opened chan struct{} }

// Gate implements device.Gater. The gate may be opened more than once.
func (d *Device) Gate(s device.Stream) (open func(), err error) {
	const call = "gate"
	own, err := d.ownStream(call, s)
	if err != nil {
		return nil, err
	}
	g := &gate{opened: make(chan struct{})}
	if _, err := own.enqueue(call, &op{kind: opGate, gate: g}); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { close(g.opened) }), nil
}

// ownStream returns s as a stream of this device.
func (d *Device) ownStream(call string, s device.Stream) (*stream, error) {
	own, ok := s.(*stream)
	if !ok || own == nil || own.dev != d {
		return nil, d.Errorf(call, device.ErrInvalid, "the stream is not one of this device")
	}
	return own, nil
}

// hold returns once the gate is open, gateLimit has passed or the device is lost.
func (g *gate) hold(d *Device) {
	limit := time.NewTimer(gateLimit)
	defer limit.Stop()
	select {
	case <-g.opened:
	case <-limit.C:
	case <-d.faulted:
	}
}
