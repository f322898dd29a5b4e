package host

import (
	"sync"

	"millrace/internal/device"
)

// defaults is the legacy default stream, while anybody holds it.
type defaults struct {
	mu     sync.Mutex
	legacy *stream
}

// DefaultStream implements device.DefaultStreamer. The legacy default stream is one queue that all share, and
// its name is the one that it was first asked for by.
func (d *Device) DefaultStream(name string, kind device.DefaultKind) (device.Stream, error) {
	if kind != device.LegacyDefault {
		return d.NewStream(name)
	}
	d.defaults.mu.Lock()
	defer d.defaults.mu.Unlock()
	if d.defaults.legacy == nil {
		s, err := d.newStream(name)
		if err != nil {
			return nil, err
		}
		d.defaults.legacy = s
	}
	d.defaults.legacy.holders++
	return d.defaults.legacy, nil
}

// stillHeld takes one holder off the legacy default stream, and says whether there are others. Any other stream
// has its caller alone.
func (d *Device) stillHeld(s *stream) bool {
	d.defaults.mu.Lock()
	defer d.defaults.mu.Unlock()
	if d.defaults.legacy != s {
		return false
	}
	s.holders--
	if s.holders == 0 {
		d.defaults.legacy = nil
	}
	return s.holders > 0
}
