package sim

import (
	"errors"
	"fmt"

	"millrace/internal/device"
	"millrace/internal/device/memory"
)

// life is that of one allocation, of device memory or of a host buffer. Queued work holds on to it, so that it is found
// when the memory was freed before the work ran, whatever lives at its addresses by then.
type life struct {
	over bool // freed; for pool memory, once the freeing stream got there
}

// memories is the device's memory and that of the host. The device's lock guards it.
type memories struct {
	space   *memory.Space
	buffers *memory.HostBuffers
	lives   map[uint64]*life // of what is allocated, by its first address
}

func newMemories(id string, deviceLimit, hostLimit int64) memories {
	return memories{
		space:   memory.NewSpace(id, deviceLimit, 0),
		buffers: memory.NewHostBuffers(id, hostLimit),
		lives:   make(map[uint64]*life),
	}
}

// begin starts the life of the allocation at base.
func (m *memories) begin(base uint64) { m.lives[base] = &life{} }

// forget returns the life of the allocation at base, which was freed. The caller sets when it is over.
func (m *memories) forget(base uint64) *life {
	l := m.lives[base]
	delete(m.lives, base)
	return l
}

// finish ends the life of the allocation at base, which was freed at once. The invariants build panics if queued work uses
// it.
func (d *Device) finish(call string, base uint64) {
	freed := d.forget(base)
	d.checkUnused(call, freed)
	freed.over = true
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
	if bytes > 0 && d.injected(PinnedOutOfMemory, &d.counts.hostAllocs) {
		return device.HostBuffer{}, device.Errorf(call, d.info.ID, device.ErrOutOfMemory, "injected")
	}
	b, err := d.buffers.Alloc(bytes, device.Pinned, guard{d})
	if err != nil {
		return b, err
	}
	at, err := d.buffers.Map(b)
	if err != nil {
		return b, err
	}
	d.begin(at.Addr)
	return b, nil
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
	at, _ := d.buffers.Map(b) // fails where Free does
	if err := d.buffers.Free(b); err != nil {
		return err
	}
	d.finish(call, at.Addr)
	return nil
}

// Alloc implements device.Device.
func (d *Device) Alloc(bytes int) (device.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("alloc"); err != nil {
		return device.Memory{}, err
	}
	m, err := d.space.Alloc(bytes)
	if err == nil {
		d.begin(m.Addr)
	}
	return m, err
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
	if err := d.space.Free(m); err != nil {
		return err
	}
	d.finish(call, m.Addr)
	return nil
}

// Map implements device.Mapper.
func (d *Device) Map(b device.HostBuffer) (device.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("map"); err != nil {
		return device.Memory{}, err
	}
	return d.buffers.Map(b)
}

// use is memory that an operation reads or writes.
type use struct {
	life  *life // nil for host memory that the device did not allocate
	data  []byte
	fault string // why the access cannot work, found when it was enqueued
}

// useDevice finds the bytes of m. No bytes is no use of memory.
func (d *Device) useDevice(m device.Memory) use {
	if m.Bytes == 0 {
		return use{}
	}
	data, base, ok := d.space.Find(m)
	if !ok {
		return use{fault: fmt.Sprintf("illegal address: %d bytes at %#x are not within a live allocation", m.Bytes, m.Addr)}
	}
	return use{life: d.lives[base], data: data}
}

// useMapped is useDevice for memory that may also be a host buffer's.
func (d *Device) useMapped(m device.Memory) use {
	if m.Bytes == 0 || !memory.IsMapped(m) {
		return d.useDevice(m)
	}
	data, base, ok := d.buffers.Find(m)
	if !ok {
		return d.useDevice(m)
	}
	return use{life: d.lives[base], data: data}
}

// useHost takes the first n bytes of b, n > 0. Pageable memory may be the caller's own.
func (d *Device) useHost(b device.HostBuffer, n int) use {
	b = b.Slice(0, n)
	if at, err := d.buffers.Map(b); err == nil {
		return d.useMapped(at)
	}
	if b.Kind() == device.Pinned {
		return use{fault: fmt.Sprintf("illegal address: a host buffer of %d bytes is not live", n)}
	}
	return use{data: b.Raw()}
}

// touch returns why the memory that o uses cannot be accessed, nil if it can.
func (o *op) touch() error {
	for _, u := range o.uses {
		switch {
		case u.fault != "":
			return errors.New(u.fault)
		case u.life != nil && u.life.over:
			return fmt.Errorf("illegal address: %d bytes were freed before they were used", len(u.data))
		}
	}
	return nil
}
