package sim

import (
	"fmt"
	"slices"
	"sort"
	"unsafe"

	"millrace/internal/device"
)

const (
	// alignment is what the interface promises for device memory, and the unit of all accounting.
	alignment = 256

	// firstAddress is the lowest device address. Addresses are never given out twice by Alloc, so that
	// a use after free is found whatever was allocated since.
	firstAddress = 1 << 32

	// poison is what freed pool memory is filled with in the invariants build, so that work which
	// counts on what it finds there gives a wrong result.
	poison = 0xDB
)

// allocation is memory that somebody was given: device memory, or a host buffer.
type allocation struct {
	base uint64 // device address, or the address in this process
	data []byte
	pool *Pool // nil unless from a pool
	dead bool  // freed; for pool memory, once the freeing stream got there
}

// space is a set of live allocations and the room they take.
type space struct {
	limit, used int64 // bytes
	live        []*allocation
}

// insert adds a in the order of addresses.
func (s *space) insert(a *allocation) {
	s.live = slices.Insert(s.live, s.above(a.base), a)
}

// remove takes a out. It was inserted before.
func (s *space) remove(a *allocation) {
	i := s.above(a.base) - 1
	s.live = slices.Delete(s.live, i, i+1)
}

// find returns the live allocation that holds all n bytes from addr, nil if none does.
func (s *space) find(addr uint64, n int) *allocation {
	i := s.above(addr) - 1
	if i < 0 {
		return nil
	}
	a := s.live[i]
	if off := addr - a.base; off > uint64(len(a.data)) || uint64(n) > uint64(len(a.data))-off {
		return nil
	}
	return a
}

// above is the index of the first allocation that starts past addr.
func (s *space) above(addr uint64) int {
	return sort.Search(len(s.live), func(i int) bool { return s.live[i].base > addr })
}

// memory is the host's and the device's. The device's lock guards it.
type memory struct {
	hostSpace, deviceSpace space
	next                   uint64 // the next device address
}

func newMemory(deviceLimit, hostLimit int64) memory {
	return memory{
		hostSpace:   space{limit: hostLimit},
		deviceSpace: space{limit: deviceLimit},
		next:        firstAddress,
	}
}

// addresses sets n bytes of addresses aside, with a gap behind them that nothing lives in.
func (m *memory) addresses(n int64) uint64 {
	base := m.next
	m.next += uint64(roundUp(n, alignment)) + alignment
	return base
}

// roundUp rounds n up to a multiple of unit.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// address is where mem lies in this process. mem is not empty.
func address(mem []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}

// paint sets every byte of mem to value, in copies of doubling length: a loop over bytes is slow, and under
// the race detector very slow.
func paint(mem []byte, value byte) {
	if len(mem) == 0 {
		return
	}
	mem[0] = value
	for n := 1; n < len(mem); n *= 2 {
		copy(mem[n:], mem[:n])
	}
}

// AllocHost implements device.Device. The memory is ordinary memory of this process that copies treat as
// pinned.
func (d *Device) AllocHost(bytes int) (device.HostBuffer, error) {
	const call = "alloc host"
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(call); err != nil {
		return device.HostBuffer{}, err
	}
	if bytes <= 0 {
		return device.HostBuffer{}, d.invalid(call, "%d bytes: must be more than 0", bytes)
	}
	d.counts.hostAllocs++
	if _, ok := d.match(PinnedOutOfMemory, d.counts.hostAllocs); ok {
		return device.HostBuffer{}, device.Errorf(call, d.info.ID, device.ErrOutOfMemory, "injected")
	}
	h := &d.hostSpace
	if int64(bytes) > h.limit-h.used {
		return device.HostBuffer{}, device.Errorf(call, d.info.ID, device.ErrOutOfMemory,
			"%d bytes asked for, %d of %d in use", bytes, h.used, h.limit)
	}
	mem := make([]byte, bytes)
	a := &allocation{base: address(mem), data: mem}
	h.used += int64(bytes)
	h.insert(a)
	return device.NewHostBuffer(mem, device.Pinned, guard{d}), nil
}

// FreeHost implements device.Device. Work that still uses the buffer loses the device when it gets
// there; the invariants build panics here already.
func (d *Device) FreeHost(b device.HostBuffer) error {
	const call = "free host"
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(call); err != nil {
		return err
	}
	if b.Len() == 0 {
		return d.invalid(call, "an empty buffer")
	}
	h := &d.hostSpace
	a := h.find(address(b.Raw()), b.Len())
	if a == nil || len(a.data) != b.Len() {
		return d.invalid(call, "%d bytes that are not a whole live host buffer of this device", b.Len())
	}
	d.checkUnused(call, a)
	a.dead = true
	h.used -= int64(len(a.data))
	h.remove(a)
	return nil
}

// Alloc implements device.Device.
func (d *Device) Alloc(bytes int) (device.Memory, error) {
	const call = "alloc"
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(call); err != nil {
		return device.Memory{}, err
	}
	if bytes <= 0 {
		return device.Memory{}, d.invalid(call, "%d bytes: must be more than 0", bytes)
	}
	s := &d.deviceSpace
	if int64(bytes) > s.limit || roundUp(int64(bytes), alignment) > s.limit-s.used {
		return device.Memory{}, device.Errorf(call, d.info.ID, device.ErrOutOfMemory,
			"%d bytes asked for, %d of %d in use", bytes, s.used, s.limit)
	}
	a := &allocation{base: d.addresses(int64(bytes)), data: make([]byte, bytes)}
	s.used += roundUp(int64(bytes), alignment)
	s.insert(a)
	return device.Memory{Addr: a.base, Bytes: bytes}, nil
}

// Free implements device.Device. Work that still uses the memory loses the device when it gets there;
// the invariants build panics here already.
func (d *Device) Free(m device.Memory) error {
	const call = "free"
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(call); err != nil {
		return err
	}
	a, err := d.whole(call, m, nil)
	if err != nil {
		return err
	}
	d.checkUnused(call, a)
	a.dead = true
	d.deviceSpace.used -= roundUp(int64(len(a.data)), alignment)
	d.deviceSpace.remove(a)
	return nil
}

// whole finds the live allocation that m is all of, and that came from pool.
func (d *Device) whole(call string, m device.Memory, pool *Pool) (*allocation, error) {
	a := d.deviceSpace.find(m.Addr, max(m.Bytes, 0))
	switch {
	case a == nil || a.base != m.Addr || len(a.data) != m.Bytes:
		return nil, d.invalid(call, "%d bytes at %#x are not a whole live allocation", m.Bytes, m.Addr)
	case a.pool != pool:
		return nil, d.invalid(call, "the memory at %#x was allocated elsewhere: free it where it came from", m.Addr)
	}
	return a, nil
}

// use is memory that an operation reads or writes.
type use struct {
	alloc *allocation // nil for host memory that the device did not allocate
	data  []byte
	fault string // why the access cannot work, found when it was enqueued
}

// useDevice finds the bytes of m. No bytes is no use of memory.
func (d *Device) useDevice(m device.Memory) use {
	if m.Bytes == 0 {
		return use{}
	}
	a := d.deviceSpace.find(m.Addr, max(m.Bytes, 0))
	if a == nil {
		return use{fault: fmt.Sprintf("illegal address: %d bytes at %#x are not within a live allocation", m.Bytes, m.Addr)}
	}
	off := int(m.Addr - a.base)
	return use{alloc: a, data: a.data[off : off+m.Bytes : off+m.Bytes]}
}

// useMapped is useDevice for memory that may also be a host buffer's.
func (d *Device) useMapped(m device.Memory) use {
	a := d.hostSpace.find(m.Addr, max(m.Bytes, 0))
	if a == nil || m.Bytes == 0 {
		return d.useDevice(m)
	}
	off := int(m.Addr - a.base)
	return use{alloc: a, data: a.data[off : off+m.Bytes : off+m.Bytes]}
}

// Map implements device.Mapper. The address is the one in this process, which is far from the device's own.
func (d *Device) Map(b device.HostBuffer) (device.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("map"); err != nil {
		return device.Memory{}, err
	}
	if b.Len() == 0 || d.hostSpace.find(address(b.Raw()), b.Len()) == nil {
		return device.Memory{}, d.invalid("map", "%d bytes that are not of a live host buffer of this device", b.Len())
	}
	return device.Memory{Addr: address(b.Raw()), Bytes: b.Len()}, nil
}

// useHost takes the first n bytes of b, n > 0. Pageable memory may be the caller's own.
func (d *Device) useHost(b device.HostBuffer, n int) use {
	mem := b.Raw()[:n]
	a := d.hostSpace.find(address(mem), n)
	if a == nil && b.Kind() == device.Pinned {
		return use{fault: fmt.Sprintf("illegal address: a host buffer of %d bytes is not live", n)}
	}
	return use{alloc: a, data: mem}
}

// touch returns why the memory that o uses cannot be accessed, nil if it can.
func (o *op) touch() error {
	for _, u := range o.uses {
		switch {
		case u.fault != "":
			return fmt.Errorf("%s", u.fault)
		case u.alloc != nil && u.alloc.dead:
			return fmt.Errorf("illegal address: %d bytes were freed before they were used", len(u.data))
		}
	}
	return nil
}
