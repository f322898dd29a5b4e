package software

import (
	"fmt"

	"millrace/internal/device"
)

// Alloc implements device.Device. It does not wait for other work.
func (d *Device) Alloc(bytes int) (device.Memory, error) {
	seg, err := d.allocate("alloc", &d.memory, bytes)
	if err != nil {
		return device.Memory{}, err
	}
	return device.Memory{Addr: seg.base, Bytes: bytes}, nil
}

// AllocHost implements device.Device. The memory is ordinary process memory.
func (d *Device) AllocHost(bytes int) (device.HostBuffer, error) {
	const call = "alloc host"
	seg, err := d.allocate(call, &d.buffers, bytes)
	if err != nil {
		return device.HostBuffer{}, err
	}
	return device.NewHostBuffer(seg.mem, d.config.HostKind, guard{d}), nil
}

// allocate takes an allocation from a space.
func (d *Device) allocate(call string, s *space, bytes int) (*segment, error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.usable(call); err != nil {
		return nil, err
	}
	if bytes <= 0 {
		return nil, d.errorf(call, device.ErrInvalid, "%d bytes: ask for at least 1", bytes)
	}
	if err := d.inject(call); err != nil {
		return nil, err
	}
	if !s.reserve(bytes) {
		return nil, d.errorf(call, device.ErrOutOfMemory, "%d bytes: %s", bytes, s.room())
	}
	// Large memory takes long to clear, so it is cleared without holding the lock.
	d.Mu.Unlock()
	mem := s.make(bytes)
	d.Mu.Lock()
	return s.insert(mem, nil), nil
}

// Free implements device.Device. Work that still uses the memory loses the device when it runs; with the invariants tag
// Free panics.
func (d *Device) Free(m device.Memory) error {
	const call = "free"
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.usable(call); err != nil {
		return err
	}
	seg := d.memory.find(m)
	if seg == nil || seg.pool != nil || seg.base != m.Addr || len(seg.mem) != m.Bytes {
		return d.misuse(call, "%v is not a whole live allocation of Alloc", span(m))
	}
	d.mustBeUnused(seg.mem, span(m).String()+" is freed")
	d.memory.remove(seg)
	return nil
}

// FreeHost implements device.Device. Work that still uses the buffer loses the device when it runs; with the invariants
// tag FreeHost panics.
func (d *Device) FreeHost(b device.HostBuffer) error {
	const call = "free host"
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.usable(call); err != nil {
		return err
	}
	seg := d.buffers.around(b.Raw())
	if seg == nil || len(seg.mem) != b.Len() {
		return d.misuse(call, "a host buffer of %d bytes is not a whole live allocation of AllocHost", b.Len())
	}
	d.mustBeUnused(seg.mem, "a host buffer is freed")
	d.buffers.remove(seg)
	return nil
}

// Map implements device.Mapper. Kernels are Go code in this process, so they can access any buffer.
func (d *Device) Map(b device.HostBuffer) (device.Memory, error) {
	const call = "map"
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.usable(call); err != nil {
		return device.Memory{}, err
	}
	seg := d.buffers.around(b.Raw())
	if seg == nil {
		return device.Memory{}, d.errorf(call, device.ErrInvalid,
			"%d bytes that are not of a live host buffer of this device: map what AllocHost gave", b.Len())
	}
	return device.Memory{Addr: seg.base + address(b.Raw()) - address(seg.mem), Bytes: b.Len()}, nil
}

// use returns the use of device memory. If m is not within one live allocation, o will fail. An empty m uses no memory.
func (o *Op) use(m device.Memory) use {
	if m.Bytes == 0 {
		return use{}
	}
	if seg := o.Stream.dev.memory.find(m); seg != nil {
		if seg.pool == nil || !o.Stream.dev.config.Strict {
			return use{seg.bytes(m), &seg.life}
		}
		if b, _ := seg.pool.blockOver(m); b != nil {
			return use{seg.bytes(m), b.life}
		}
	}
	o.fault = fmt.Sprintf("illegal address: %v is used after it was freed, or was never allocated", span(m))
	return use{}
}

// useMapped does the same as use, and also accepts the mapped memory of a host buffer.
func (o *Op) useMapped(m device.Memory) use {
	if m.Bytes != 0 && m.Addr&mappedBit != 0 {
		if seg := o.Stream.dev.buffers.find(m); seg != nil {
			return use{seg.bytes(m), &seg.life}
		}
	}
	return o.use(m)
}

// useHost returns the use of a host buffer. Pageable memory may be the caller's own.
func (o *Op) useHost(b device.HostBuffer) use {
	if seg := o.Stream.dev.buffers.around(b.Raw()); seg != nil {
		return use{b.Raw(), &seg.life}
	}
	if b.Kind() == device.Pinned {
		o.fault = fmt.Sprintf("illegal address: a host buffer of %d bytes is used after it was freed", b.Len())
	}
	return use{mem: b.Raw()}
}
