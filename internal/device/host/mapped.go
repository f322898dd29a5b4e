package host

import (
	"unsafe"

	"millrace/internal/device"
)

// mappedBit is in every address that Map gives: none of device memory has it, as high as they may climb. The rest is
// the address in this process.
const mappedBit = 1 << 63

// Map implements device.Mapper: a kernel is Go code of this process, so it reaches any buffer of AllocHost.
func (d *Device) Map(b device.HostBuffer) (device.Memory, error) {
	const call = "map"
	if err := d.usable(call); err != nil {
		return device.Memory{}, err
	}
	if b.Len() == 0 || d.buffers.over(hostRange(b.Raw())) == nil {
		return device.Memory{}, d.errorf(call, device.ErrInvalid,
			"%d bytes that are not of a live host buffer of this device: map what AllocHost gave", b.Len())
	}
	return device.Memory{Addr: hostRange(b.Raw()).lo | mappedBit, Bytes: b.Len()}, nil
}

// isMapped says whether m is host memory, by an address of Map.
func isMapped(m device.Memory) bool { return m.Addr&mappedBit != 0 }

// mappedRange is where mapped memory is in this process.
func mappedRange(m device.Memory) addressRange {
	lo := m.Addr &^ mappedBit
	return addressRange{lo, lo + uint64(m.Bytes)}
}

// resolveMapped is resolve for what a kernel may also reach in host memory.
func (s *stream) resolveMapped(call string, m device.Memory) ([]byte, bool) {
	if isMapped(m) && m.Bytes > 0 {
		if mem := s.dev.buffers.over(mappedRange(m)); mem != nil {
			return mem, true
		}
	}
	return s.resolve(call, m)
}

// over gives the bytes at r; nil if they do not all lie in one live allocation.
func (h *hostMemory) over(r addressRange) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	for first, length := range h.live {
		mem := unsafe.Slice(first, length)
		if whole := hostRange(mem); whole.lo <= r.lo && r.lo <= r.hi && r.hi <= whole.hi {
			return mem[r.lo-whole.lo : r.hi-whole.lo]
		}
	}
	return nil
}
