package software

import (
	"fmt"
	"slices"
	"sync"

	"millrace/internal/device"
)

// mappedBit is in every address that HostBuffers.Map gives: none of a Space has it, as high as they may climb.
const mappedBit = 1 << 63

// HostBuffers is the host memory that copies and kernels reach: ordinary memory of this process. Kernels reach it at
// addresses that are never used twice, as in a Space. Methods are safe for concurrent use.
type HostBuffers struct {
	id    string // the device's, for errors
	limit int64  // bytes

	mu   sync.Mutex
	used int64
	next uint64 // base of the next buffer
	live []hostBuffer
}

type hostBuffer struct {
	base uint64 // where kernels reach it
	mem  []byte
}

// NewHostBuffers makes the host memory of the device with that id: limit bytes, none of which are taken from the system yet.
func NewHostBuffers(id string, limit int64) *HostBuffers {
	return &HostBuffers{id: id, limit: limit, next: mappedBit}
}

// Alloc allocates bytes, which are said to be memory of that kind. Fails with device.ErrInvalid for less than 1, and with
// device.ErrOutOfMemory.
func (h *HostBuffers) Alloc(bytes int, kind device.HostKind, guard device.Guard) (device.HostBuffer, error) {
	const call = "alloc host"
	if bytes <= 0 {
		return device.HostBuffer{}, device.Errorf(call, h.id, device.ErrInvalid, "%d bytes: ask for at least 1", bytes)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if int64(bytes) > h.limit-h.used {
		return device.HostBuffer{}, device.Errorf(call, h.id, device.ErrOutOfMemory,
			"%d bytes: %d of %d are taken", bytes, h.used, h.limit)
	}
	mem := aligned(bytes)
	h.used += int64(bytes)
	h.live = append(h.live, hostBuffer{base: h.next, mem: mem})
	h.next += uint64(roundUp(bytes, gap) + gap)
	return device.NewHostBuffer(mem, kind, guard), nil
}

// aligned is new memory at a multiple of Alignment, which a kernel wants of the results it writes in place.
func aligned(bytes int) []byte {
	mem := make([]byte, bytes+Alignment-1)
	skip := int(-Address(mem) % Alignment)
	return mem[skip : skip+bytes : skip+bytes]
}

// Free frees what Alloc returned, whole. Fails with device.ErrInvalid for anything else.
func (h *HostBuffers) Free(b device.HostBuffer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.around(b.Raw())
	if i < 0 || len(h.live[i].mem) != b.Len() {
		return device.Errorf("free host", h.id, device.ErrInvalid,
			"a host buffer of %d bytes is not a whole live allocation of AllocHost", b.Len())
	}
	h.used -= int64(b.Len())
	h.live = slices.Delete(h.live, i, i+1)
	return nil
}

// Holds reports whether mem lies in a live buffer.
func (h *HostBuffers) Holds(mem []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.around(mem) >= 0
}

// around finds the live buffer that mem lies in; -1 if there is none. The caller holds mu.
func (h *HostBuffers) around(mem []byte) int {
	if len(mem) == 0 {
		return -1
	}
	at := Address(mem)
	return slices.IndexFunc(h.live, func(b hostBuffer) bool {
		lo := Address(b.mem)
		return lo <= at && at+uint64(len(mem)) <= lo+uint64(len(b.mem))
	})
}

// Map gives the address at which kernels reach b. Fails with device.ErrInvalid if b is not all in one live buffer.
func (h *HostBuffers) Map(b device.HostBuffer) (device.Memory, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.around(b.Raw())
	if i < 0 {
		return device.Memory{}, device.Errorf("map", h.id, device.ErrInvalid,
			"%d bytes that are not of a live host buffer of this device: map what AllocHost gave", b.Len())
	}
	in := h.live[i]
	return device.Memory{Addr: in.base + Address(b.Raw()) - Address(in.mem), Bytes: b.Len()}, nil
}

// IsMapped reports whether m is host memory, by an address of Map.
func IsMapped(m device.Memory) bool { return m.Addr&mappedBit != 0 }

// Find gives the memory at m, an address of Map, and the address at which the buffer starts that it is in; false if it is
// not all in one live buffer.
func (h *HostBuffers) Find(m device.Memory) (mem []byte, base uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.live {
		b := &h.live[i]
		if m.Addr < b.base || m.Bytes < 0 {
			continue
		}
		if lo, size := m.Addr-b.base, uint64(len(b.mem)); lo <= size && uint64(m.Bytes) <= size-lo {
			hi := lo + uint64(m.Bytes)
			return b.mem[lo:hi:hi], b.base, true
		}
	}
	return nil, 0, false
}

// Leaks describes what Alloc gave and nobody freed.
func (h *HostBuffers) Leaks() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, b := range h.live {
		all = append(all, fmt.Sprintf("host buffer %d bytes", len(b.mem)))
	}
	return all
}

// Clear forgets every buffer.
func (h *HostBuffers) Clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live, h.used = nil, 0
}
