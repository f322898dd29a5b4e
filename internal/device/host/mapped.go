package host

import "millrace/internal/device"

// mappedBit is in every address that Map gives: none of device memory has it, as high as they may climb.
const mappedBit = 1 << 63

// Map implements device.Mapper: a kernel is Go code of this process, so it reaches any buffer of AllocHost.
func (d *Device) Map(b device.HostBuffer) (device.Memory, error) {
	const call = "map"
	if err := d.usable(call); err != nil {
		return device.Memory{}, err
	}
	m, ok := d.buffers.addressOf(b.Raw())
	if !ok {
		return device.Memory{}, d.errorf(call, device.ErrInvalid,
			"%d bytes that are not of a live host buffer of this device: map what AllocHost gave", b.Len())
	}
	return m, nil
}

// isMapped says whether m is host memory, by an address of Map.
func isMapped(m device.Memory) bool { return m.Addr&mappedBit != 0 }

// resolveMapped is resolve for what a kernel may also reach in host memory.
func (s *stream) resolveMapped(call string, m device.Memory) ([]byte, bool) {
	if isMapped(m) && m.Bytes > 0 {
		if mem := s.dev.buffers.at(m); mem != nil {
			return mem, true
		}
	}
	return s.resolve(call, m)
}

// addressOf is where kernels reach mem; false if it is no memory, or not all of it is in one live allocation.
func (h *hostMemory) addressOf(mem []byte) (device.Memory, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, ok := h.around(mem)
	if !ok {
		return device.Memory{}, false
	}
	return device.Memory{Addr: a.base + hostRange(mem).lo - hostRange(a.mem).lo, Bytes: len(mem)}, true
}

// at gives the bytes at m, an address of Map; nil if they are not all in one live allocation.
func (h *hostMemory) at(m device.Memory) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.live {
		if m.Addr < a.base || m.Bytes < 0 {
			continue
		}
		if lo, size := m.Addr-a.base, uint64(len(a.mem)); lo <= size && uint64(m.Bytes) <= size-lo {
			hi := lo + uint64(m.Bytes)
			return a.mem[lo:hi:hi] // an operator that appends must not get at what is behind
		}
	}
	return nil
}
