package software

import (
	"slices"

	"millrace/internal/device"
)

// mappedBit is set in every address that HostBuffers.Map returns, and never in an address of device memory.
const mappedBit = 1 << 63

// HostBuffers is the host memory that copies and kernels access: ordinary process memory in a separate address space.
// Methods are safe for concurrent use.
type HostBuffers struct{ space *Space }

// NewHostBuffers creates the host memory of the device with that ID. The limit is in bytes. It allocates no memory yet.
func NewHostBuffers(id string, limit int64) *HostBuffers {
	h := &HostBuffers{space: NewSpace(id, limit, 0)}
	h.space.next, h.space.unit = mappedBit, 1
	return h
}

// Alloc allocates memory and labels it with the given kind. It fails with device.ErrInvalid if bytes is less than 1,
// and with device.ErrOutOfMemory.
func (h *HostBuffers) Alloc(bytes int, kind device.HostKind, guard device.Guard) (device.HostBuffer, error) {
	seg, err := h.space.alloc("alloc host", bytes)
	if err != nil {
		return device.HostBuffer{}, err
	}
	return device.NewHostBuffer(seg.mem, kind, guard), nil
}

// Free frees a whole buffer that Alloc returned. It fails with device.ErrInvalid for anything else.
func (h *HostBuffers) Free(b device.HostBuffer) error {
	const call = "free host"
	if err := h.space.usable(call); err != nil {
		return err
	}
	h.space.mu.Lock()
	defer h.space.mu.Unlock()
	i := h.around(b.Raw())
	if i < 0 || len(h.space.segments[i].mem) != b.Len() {
		return h.space.errorf(call, device.ErrInvalid, "a host buffer of %d bytes is not a whole live allocation of AllocHost", b.Len())
	}
	h.space.remove(i)
	return nil
}

// Holds reports whether mem is within a live buffer.
func (h *HostBuffers) Holds(mem []byte) bool {
	h.space.mu.RLock()
	defer h.space.mu.RUnlock()
	return h.around(mem) >= 0
}

// around returns the index of the live buffer that contains mem, or -1 if there is none. The caller holds the space's
// lock.
func (h *HostBuffers) around(mem []byte) int {
	if len(mem) == 0 {
		return -1
	}
	at := Address(mem)
	return slices.IndexFunc(h.space.segments, func(seg *segment) bool {
		lo := Address(seg.mem)
		return lo <= at && at+uint64(len(mem)) <= lo+uint64(len(seg.mem))
	})
}

// Map returns the address at which kernels access b. Kernels are Go code in this process, so they can access any
// buffer. Map fails with device.ErrInvalid if b is not within one live buffer.
func (h *HostBuffers) Map(b device.HostBuffer) (device.Memory, error) {
	const call = "map"
	if err := h.space.usable(call); err != nil {
		return device.Memory{}, err
	}
	h.space.mu.RLock()
	defer h.space.mu.RUnlock()
	i := h.around(b.Raw())
	if i < 0 {
		return device.Memory{}, h.space.errorf(call, device.ErrInvalid,
			"%d bytes that are not of a live host buffer of this device: map what AllocHost gave", b.Len())
	}
	seg := h.space.segments[i]
	return device.Memory{Addr: seg.base + Address(b.Raw()) - Address(seg.mem), Bytes: b.Len()}, nil
}

// IsMapped reports whether m is host memory with an address from Map.
func IsMapped(m device.Memory) bool { return m.Addr&mappedBit != 0 }

// Find returns the memory at m, an address from Map, and the start address of its buffer. It returns false if m is not
// within one live buffer.
func (h *HostBuffers) Find(m device.Memory) (mem []byte, base uint64, ok bool) {
	return h.space.Find(m)
}
