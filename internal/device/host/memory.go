package host

import (
	"millrace/internal/device"
	"millrace/internal/device/software"
)

// Alloc implements device.Device. It does not wait for other work.
func (d *Device) Alloc(bytes int) (device.Memory, error) { return d.Space.Alloc(bytes) }

// Free implements device.Device. If queued work still uses the memory, that work loses the device.
func (d *Device) Free(m device.Memory) error {
	if device.Invariants && d.Usable("free") == nil {
		d.tracker.mustBeIdle(m)
	}
	return misuse(d.Space.Free(m))
}

// AllocHost implements device.Device. The memory is pageable, and HostBuffer.Kind reports that: pinning gains nothing
// on CPU cores.
func (d *Device) AllocHost(bytes int) (device.HostBuffer, error) {
	var guard device.Guard
	if device.Invariants {
		guard = bufferGuard{d}
	}
	return d.Buffers.Alloc(bytes, device.Pageable, guard)
}

// FreeHost implements device.Device.
func (d *Device) FreeHost(b device.HostBuffer) error {
	if device.Invariants && d.Usable("free host") == nil {
		d.tracker.mustNotCopy(b.Raw(), "freed")
	}
	return misuse(d.Buffers.Free(b))
}

// resolve returns the bytes at m. An address outside live memory loses the device.
func (s *stream) resolve(call string, m device.Memory) ([]byte, bool) {
	mem, ok := s.dev.Space.Bytes(m)
	if !ok {
		kind := device.ErrLost
		if call == "launch" {
			kind = device.ErrKernelFault
		}
		s.dev.fault(s.dev.Errorf(call, kind,
			"illegal address on stream %s: %v is not in live device memory", s.name, software.Span(m)))
	}
	return mem, ok
}

// resolveMapped does the same as resolve, and also accepts host memory, for kernels.
func (s *stream) resolveMapped(call string, m device.Memory) ([]byte, bool) {
	if software.IsMapped(m) && m.Bytes > 0 {
		if mem, _, ok := s.dev.Buffers.Find(m); ok {
			return mem, true
		}
	}
	return s.resolve(call, m)
}

// poison fills freed memory with software.Poison, so that a later read shows. It does so with the invariants tag only.
func (s *stream) poison(m device.Memory) {
	if !device.Invariants {
		return
	}
	if mem, ok := s.resolve("free", m); ok {
		software.Fill(mem, software.Poison)
	}
}

// bufferGuard checks every HostBuffer.Bytes with the invariants tag.
type bufferGuard struct{ dev *Device }

// Access implements device.Guard.
func (g bufferGuard) Access(mem []byte) {
	if len(mem) == 0 {
		return
	}
	if !g.dev.Buffers.Holds(mem) {
		panic("host device: host buffer used after FreeHost")
	}
	g.dev.tracker.mustNotCopy(mem, "looked at")
}
