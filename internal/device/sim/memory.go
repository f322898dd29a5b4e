package sim

import (
	"errors"
	"fmt"

	"millrace/internal/device"
	"millrace/internal/device/software"
)

// life is the lifetime of one allocation of device memory or of a host buffer. Queued work keeps a pointer to it, so
// use after free is detected even if the addresses belong to another allocation by then.
type life struct {
	over bool // freed; for pool memory, once the freeing stream reached the free
}

// lives maps the first address of each live allocation to its life. The device's lock guards it.
type lives map[uint64]*life

// begin starts the life of the allocation at base.
func (l lives) begin(base uint64) { l[base] = &life{} }

// forget removes and returns the life of the freed allocation at base. The caller sets over.
func (l lives) forget(base uint64) *life {
	freed := l[base]
	delete(l, base)
	return freed
}

// finish ends the life of an allocation that was freed immediately, not in stream order. The invariants build panics if
// queued work uses it.
func (d *Device) finish(call string, base uint64) {
	freed := d.forget(base)
	d.checkUnused(call, freed)
	freed.over = true
}

// AllocHost implements device.Device. The memory is ordinary process memory that copies treat as pinned.
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

// FreeHost implements device.Device. Work that still uses the buffer loses the device when it runs; the invariants
// build panics in FreeHost.
func (d *Device) FreeHost(b device.HostBuffer) error {
	const call = "free host"
	d.mu.Lock()
	defer d.mu.Unlock()
	at, _ := d.Buffers.Map(b) // fails if Free fails
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

// Free implements device.Device. Work that still uses the memory loses the device when it runs; the invariants build
// panics in Free.
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
	fault string // why the access must fail, if that was known at the call
}

// useDevice finds the bytes of m. An empty m uses no memory.
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

// useMapped does the same as useDevice, and also accepts the mapped memory of a host buffer.
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

// useHost returns the use of the first n > 0 bytes of b. Pageable memory may be the caller's own.
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

// touch returns an error if the memory that o uses can't be accessed.
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
