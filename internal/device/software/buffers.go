package software

import (
	"slices"

	"millrace/internal/device"
)

// mappedBit is in every address that HostBuffers.Map gives: device memory has none of it, as high as its addresses may climb.
const mappedBit = 1 << 63

// HostBuffers is the host memory that copies and kernels reach: ordinary memory of this process, in a space of its own. Methods
// are safe for concurrent use.
type HostBuffers struct{ space *Space }

// NewHostBuffers makes the host memory of the device with that id: limit bytes, none of which are taken from the system yet.
func NewHostBuffers(id string, limit int64) *HostBuffers {
	h := &HostBuffers{space: NewSpace(id, limit, 0)}
	h.space.next, h.space.unit = mappedBit, 1
	return h
}

// Alloc allocates bytes, which are said to be memory of that kind. Fails with device.ErrInvalid for less than 1, and with
// device.ErrOutOfMemory.
func (h *HostBuffers) Alloc(bytes int, kind device.HostKind, guard device.Guard) (device.HostBuffer, error) {
	seg, err := h.space.alloc("alloc host", bytes)
	if err != nil {
		return device.HostBuffer{}, err
	}
	return device.NewHostBuffer(seg.mem, kind, guard), nil
}

// Free frees what Alloc returned, whole. Fails with device.ErrInvalid for anything else.
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

// Holds reports whether mem lies in a live buffer.
func (h *HostBuffers) Holds(mem []byte) bool {
	h.space.mu.RLock()
	defer h.space.mu.RUnlock()
	return h.around(mem) >= 0
}

// around finds the live buffer that mem lies in; -1 if there is none. The caller holds the space's lock.
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

// Map gives the address at which kernels reach b: a kernel is Go code of this process, so it reaches any buffer. Fails with
// device.ErrInvalid if b is not all in one live buffer.
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

// IsMapped reports whether m is host memory, by an address of Map.
func IsMapped(m device.Memory) bool { return m.Addr&mappedBit != 0 }

// Find gives the memory at m, an address of Map, and the address at which the buffer starts that it is in; false if it is
// not all in one live buffer.
func (h *HostBuffers) Find(m device.Memory) (mem []byte, base uint64, ok bool) {
	return h.space.Find(m)
}
