package sim

import (
	"errors"
	"fmt"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

// life is that of one allocation, of device memory or of a host buffer. Queued work holds on to it, so that it is found
// when the memory was freed before the work ran, whatever lives at its addresses by then.
type life struct {
	over bool // freed; for pool memory, once the freeing stream got there
}

// lives are those of what is allocated, by its first address. The device's lock guards them.
type lives map[uint64]*life

// begin starts the life of the allocation at base.
func (l lives) begin(base uint64) { l[base] = &life{} }

// forget returns the life of the allocation at base, which was freed. The caller sets when it is over.
func (l lives) forget(base uint64) *life {
	freed := l[base]
	delete(l, base)
	return freed
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
	if err := d.Usable(call); err != nil {
		return device.HostBuffer{}, err
	}
	if bytes > 0 && d.injected(PinnedOutOfMemory, &d.counts.hostAllocs) {
		return device.HostBuffer{}, d.Errorf(call, device.ErrOutOfMemory, "injected")
	}
	b, err := d.Buffers.Alloc(bytes, device.Pinned, guard{d})
	if err != nil {
		return b, err
	}
	at, err := d.Buffers.Map(b)
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
	at, _ := d.Buffers.Map(b) // fails where Free does
	if err := d.Buffers.Free(b); err != nil {
		return err
	}
	d.finish(call, at.Addr)
	return nil
}

// Alloc implements device.Device.
func (d *Device) Alloc(bytes int) (device.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, err := d.Space.Alloc(bytes)
	if err == nil {
		d.begin(m.Addr)
	}
	return m, err
}

// Free implements device.Device. Work that still uses the memory loses the device when it gets there;
// the invariants build panics here already.
func (d *Device) Free(m device.Memory) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.Space.Free(m); err != nil {
		return err
	}
	d.finish("free", m.Addr)
	return nil
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
	data, base, ok := d.Space.Find(m)
	if !ok {
		return use{fault: fmt.Sprintf("illegal address: %d bytes at %#x are not within a live allocation", m.Bytes, m.Addr)}
	}
	return use{life: d.lives[base], data: data}
}

// useMapped is useDevice for memory that may also be a host buffer's.
func (d *Device) useMapped(m device.Memory) use {
	if m.Bytes == 0 || !software.IsMapped(m) {
		return d.useDevice(m)
	}
	data, base, ok := d.Buffers.Find(m)
	if !ok {
		return d.useDevice(m)
	}
	return use{life: d.lives[base], data: data}
}

// useHost takes the first n bytes of b, n > 0. Pageable memory may be the caller's own.
func (d *Device) useHost(b device.HostBuffer, n int) use {
	b = b.Slice(0, n)
	if at, err := d.Buffers.Map(b); err == nil {
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
