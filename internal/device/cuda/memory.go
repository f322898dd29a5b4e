//go:build cgo

package cuda

import (
	"unsafe"

	"millrace/internal/device"
)

// AllocHost implements device.Device. The memory is always pinned.
func (d *gpu) AllocHost(bytes int) (b device.HostBuffer, err error) {
	err = d.alloc("alloc host", bytes, func() error {
		m, err := d.hostAlloc(bytes)
		if err == nil {
			put(&d.registry, d.buffers, m, bytes)
			b = device.NewHostBuffer(unsafe.Slice((*byte)(m), bytes), device.Pinned, nil)
		}
		return err
	})
	return b, err
}

// hostAlloc allocates pinned memory on the GPU's NUMA node, if the system reports one.
func (d *gpu) hostAlloc(bytes int) (unsafe.Pointer, error) {
	defer preferNode(d.info.NUMANode)()
	return d.lib.hostAlloc(d.handle, bytes)
}

// FreeHost implements device.Device.
func (d *gpu) FreeHost(b device.HostBuffer) error {
	m := unsafe.Pointer(unsafe.SliceData(b.Raw()))
	return free(d, "free host", d.buffers, m, b.Len(), func() error { return d.lib.hostFree(d.handle, m) })
}

// Alloc implements device.Device.
func (d *gpu) Alloc(bytes int) (m device.Memory, err error) {
	err = d.alloc("alloc", bytes, func() error {
		address, err := d.lib.deviceAlloc(d.handle, bytes)
		if err == nil {
			put(&d.registry, d.memory, address, bytes)
			m = device.Memory{Addr: address, Bytes: bytes}
		}
		return err
	})
	return m, err
}

// Free implements device.Device.
func (d *gpu) Free(m device.Memory) error {
	return free(d, "free", d.memory, m.Addr, m.Bytes, func() error { return d.lib.deviceFree(d.handle, m.Addr) })
}

// alloc makes a call that allocates memory.
func (d *gpu) alloc(op string, bytes int, call func() error) error {
	return d.call(op, func() error {
		if bytes <= 0 {
			return d.errorf(op, device.ErrInvalid, "%d bytes: give more than 0", bytes)
		}
		return call()
	})
}

// free makes a call that frees a live allocation. If it fails, the allocation stays live.
func free[K comparable](d *gpu, op string, live map[K]int, at K, bytes int, call func() error) error {
	return d.call(op, func() error {
		if !take(&d.registry, live, at, bytes) {
			return d.errorf(op, device.ErrInvalid, "%d bytes at %#x, which were not allocated, or which were freed", bytes, any(at))
		}
		err := d.bounded(op, call)
		if err != nil {
			put(&d.registry, live, at, bytes)
		}
		return err
	})
}

// Map implements device.Mapper. Under unified addressing, which every 64-bit Linux has, a GPU uses the same address for
// pinned memory as the host.
func (d *gpu) Map(b device.HostBuffer) (device.Memory, error) {
	if b.Len() == 0 || b.Kind() != device.Pinned {
		return device.Memory{}, d.errorf("map", device.ErrInvalid, "%d bytes of %v memory: use a buffer of AllocHost", b.Len(), b.Kind())
	}
	return device.Memory{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b.Raw())))), Bytes: b.Len()}, nil
}
