package host

import (
	"fmt"
	"sync"
	"unsafe"

	"millrace/internal/device"
)

// hostMemory is what AllocHost has given and FreeHost has not had back.
type hostMemory struct {
	limit int64

	mu   sync.Mutex
	used int64
	next uint64                   // where kernels reach the next allocation
	live map[*byte]hostAllocation // by first byte
}

// hostAllocation is one of AllocHost.
type hostAllocation struct {
	mem  []byte
	base uint64 // where kernels reach it: an address that is never used twice, as in addressSpace
}

// AllocHost implements device.Device. The memory is ordinary memory, and Kind says so: on CPU cores there is
// nothing to gain from pinning it.
func (d *Device) AllocHost(bytes int) (device.HostBuffer, error) {
	const call = "alloc host"
	if err := d.usable(call); err != nil {
		return device.HostBuffer{}, err
	}
	if bytes <= 0 {
		return device.HostBuffer{}, d.errorf(call, device.ErrInvalid, "%d bytes: ask for at least 1", bytes)
	}
	mem := d.buffers.take(bytes)
	if mem == nil {
		return device.HostBuffer{}, d.errorf(call, device.ErrOutOfMemory, "%d bytes: the limit is %d", bytes, d.buffers.limit)
	}
	var guard device.Guard
	if device.Invariants {
		guard = bufferGuard{d}
	}
	return device.NewHostBuffer(mem, device.Pageable, guard), nil
}

// FreeHost implements device.Device.
func (d *Device) FreeHost(b device.HostBuffer) error {
	const call = "free host"
	if err := d.usable(call); err != nil {
		return err
	}
	if device.Invariants {
		d.tracker.mustNotCopy(b.Raw(), "freed")
	}
	if !d.buffers.drop(b.Raw()) {
		return d.misuse(call, "a host buffer of %d bytes is not a whole live allocation of AllocHost", b.Len())
	}
	return nil
}

func (h *hostMemory) take(bytes int) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if int64(bytes) > h.limit-h.used {
		return nil
	}
	mem := aligned(bytes)
	h.used += int64(bytes)
	h.live[unsafe.SliceData(mem)] = hostAllocation{mem: mem, base: mappedBit | h.next}
	h.next += uint64(roundUp(bytes, segmentGap) + segmentGap)
	return mem
}

// aligned is new memory at a multiple of alignment, which a kernel wants of the results it writes in place.
func aligned(bytes int) []byte {
	mem := make([]byte, bytes+alignment-1)
	skip := int(-hostRange(mem).lo % alignment)
	return mem[skip : skip+bytes : skip+bytes]
}

func (h *hostMemory) drop(mem []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := unsafe.SliceData(mem)
	if len(mem) == 0 || len(h.live[first].mem) != len(mem) {
		return false
	}
	delete(h.live, first)
	h.used -= int64(len(mem))
	return true
}

// holds says whether mem lies in a live allocation.
func (h *hostMemory) holds(mem []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.around(mem)
	return ok
}

// around finds the live allocation that mem lies in. The caller holds mu.
func (h *hostMemory) around(mem []byte) (hostAllocation, bool) {
	if len(mem) == 0 {
		return hostAllocation{}, false
	}
	r := hostRange(mem)
	for _, a := range h.live {
		if whole := hostRange(a.mem); whole.lo <= r.lo && r.hi <= whole.hi {
			return a, true
		}
	}
	return hostAllocation{}, false
}

func (h *hostMemory) leaks() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, a := range h.live {
		all = append(all, fmt.Sprintf("host buffer %d bytes", len(a.mem)))
	}
	return all
}

func (h *hostMemory) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.live)
	h.used = 0
}

// bufferGuard looks at every HostBuffer.Bytes under the invariants tag.
type bufferGuard struct{ dev *Device }

// Access implements device.Guard.
func (g bufferGuard) Access(mem []byte) {
	if len(mem) == 0 {
		return
	}
	if !g.dev.buffers.holds(mem) {
		panic("host device: host buffer used after FreeHost")
	}
	g.dev.tracker.mustNotCopy(mem, "looked at")
}
