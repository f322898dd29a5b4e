//go:build cgo

package cuda

import (
	"fmt"
	"unsafe"

	"millrace/internal/device"
)

func describeBytes(what string, bytes int) string { return fmt.Sprintf("%s %d bytes", what, bytes) }

// AllocHost implements device.Device. The memory is always pinned.
func (d *gpu) AllocHost(bytes int) (device.HostBuffer, error) {
	const op = "alloc host"
	if err := d.beginCall(op); err != nil {
		return device.HostBuffer{}, err
	}
	defer d.release()
	if bytes <= 0 {
		return device.HostBuffer{}, d.errorf(op, device.ErrInvalid, "%d bytes: give more than 0", bytes)
	}
	m, err := d.hostAlloc(bytes)
	if err != nil {
		return device.HostBuffer{}, d.checked(err)
	}
	put(&d.registry, d.buffers, m, bytes)
	return device.NewHostBuffer(unsafe.Slice((*byte)(m), bytes), device.Pinned, nil), nil
}

// hostAlloc allocates pinned memory on the GPU's NUMA node, if the system reports one.
func (d *gpu) hostAlloc(bytes int) (unsafe.Pointer, error) {
	defer preferNode(d.info.NUMANode)()
	return d.lib.hostAlloc(d.handle, bytes)
}

// FreeHost implements device.Device.
func (d *gpu) FreeHost(b device.HostBuffer) error {
	const op = "free host"
	if err := d.beginCall(op); err != nil {
		return err
	}
	defer d.release()
	m := unsafe.Pointer(unsafe.SliceData(b.Raw()))
	if !take(&d.registry, d.buffers, m, b.Len()) {
		return d.errorf(op, device.ErrInvalid, "%d bytes that AllocHost did not return, or that were freed", b.Len())
	}
	err := d.bounded(op, func() error { return d.lib.hostFree(d.handle, m) })
	if err != nil {
		put(&d.registry, d.buffers, m, b.Len())
	}
	return err
}

// Alloc implements device.Device.
func (d *gpu) Alloc(bytes int) (device.Memory, error) {
	const op = "alloc"
	if err := d.beginCall(op); err != nil {
		return device.Memory{}, err
	}
	defer d.release()
	if bytes <= 0 {
		return device.Memory{}, d.errorf(op, device.ErrInvalid, "%d bytes: give more than 0", bytes)
	}
	address, err := d.lib.deviceAlloc(d.handle, bytes)
	if err != nil {
		return device.Memory{}, d.checked(err)
	}
	put(&d.registry, d.memory, address, bytes)
	return device.Memory{Addr: address, Bytes: bytes}, nil
}

// Free implements device.Device.
func (d *gpu) Free(m device.Memory) error {
	const op = "free"
	if err := d.beginCall(op); err != nil {
		return err
	}
	defer d.release()
	if !take(&d.registry, d.memory, m.Addr, m.Bytes) {
		return d.errorf(op, device.ErrInvalid, "%d bytes at %#x, which Alloc did not return, or which were freed", m.Bytes, m.Addr)
	}
	err := d.bounded(op, func() error { return d.lib.deviceFree(d.handle, m.Addr) })
	if err != nil {
		put(&d.registry, d.memory, m.Addr, m.Bytes)
	}
	return err
}

// put registers an allocation.
func put[K comparable](r *registry, live map[K]int, at K, bytes int) {
	r.regMu.Lock()
	defer r.regMu.Unlock()
	live[at] = bytes
}

// take removes an allocation from the registry. It returns false if there is none at that address with that size.
func take[K comparable](r *registry, live map[K]int, at K, bytes int) bool {
	r.regMu.Lock()
	defer r.regMu.Unlock()
	if size, ok := live[at]; !ok || size != bytes {
		return false
	}
	delete(live, at)
	return true
}

// Map implements device.Mapper. Under unified addressing, which every 64-bit Linux has, a GPU uses the same address for
// pinned memory as the host.
func (d *gpu) Map(b device.HostBuffer) (device.Memory, error) {
	if b.Len() == 0 || b.Kind() != device.Pinned {
		return device.Memory{}, d.errorf("map", device.ErrInvalid, "%d bytes of %v memory: use a buffer of AllocHost", b.Len(), b.Kind())
	}
	return device.Memory{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b.Raw())))), Bytes: b.Len()}, nil
}
