//go:build cgo

package cuda

import (
	"sync"
	"unsafe"

	"millrace/internal/device"
)

// AllocHost implements device.Device. The memory is always pinned.
func (g *gpu) AllocHost(bytes int) (b device.HostBuffer, err error) {
	err = g.alloc("alloc host", bytes, func() error {
		m, err := g.hostAlloc(bytes)
		if err == nil {
			put(&g.registry, g.buffers, m, bytes)
			b = device.NewHostBuffer(unsafe.Slice((*byte)(m), bytes), device.Pinned, nil)
		}
		return err
	})
	return b, err
}

// hostAlloc allocates pinned memory on the GPU's NUMA node, if the system reports one.
func (g *gpu) hostAlloc(bytes int) (unsafe.Pointer, error) {
	defer preferNode(g.info.NUMANode)()
	return g.lib.hostAlloc(g.handle, bytes)
}

// FreeHost implements device.Device.
func (g *gpu) FreeHost(b device.HostBuffer) error {
	m := unsafe.Pointer(unsafe.SliceData(b.Raw()))
	return free(g, "free host", g.buffers, m, b.Len(), func() error { return g.lib.hostFree(g.handle, m) })
}

// Alloc implements device.Device.
func (g *gpu) Alloc(bytes int) (m device.Memory, err error) {
	err = g.alloc("alloc", bytes, func() error {
		address, err := g.lib.deviceAlloc(g.handle, bytes)
		if err == nil {
			put(&g.registry, g.memory, address, bytes)
			m = device.Memory{Addr: address, Bytes: bytes}
		}
		return err
	})
	return m, err
}

// Free implements device.Device.
func (g *gpu) Free(m device.Memory) error {
	return free(g, "free", g.memory, m.Addr, m.Bytes, func() error { return g.lib.deviceFree(g.handle, m.Addr) })
}

// alloc makes a call that allocates memory.
func (g *gpu) alloc(op string, bytes int, call func() error) error {
	return g.call(op, func() error {
		if bytes <= 0 {
			return g.errorf(op, device.ErrInvalid, "%d bytes: give more than 0", bytes)
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

// Map implements device.Mapper. A GPU uses the host's addresses for pinned memory, because every 64-bit Linux has
// unified addressing.
func (g *gpu) Map(b device.HostBuffer) (device.Memory, error) {
	if b.Len() == 0 || b.Kind() != device.Pinned {
		return device.Memory{}, g.errorf("map", device.ErrInvalid, "%d bytes of %v memory: use a buffer of AllocHost", b.Len(), b.Kind())
	}
	return device.Memory{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b.Raw())))), Bytes: b.Len()}, nil
}

// pool is a separate CUDA memory pool. A closed pool is freed once all of its memory has been freed.
type pool struct {
	object
	handle poolHandle

	liveMu sync.Mutex     // locked after the locks of the pool and of a stream
	live   map[uint64]int // sizes of live allocations in bytes, by address
	used   int            // sum of the sizes in live
	freed  bool
}

// NewPool implements device.Device.
func (g *gpu) NewPool(c device.PoolOptions) (device.Pool, error) {
	const op = "new pool"
	p := &pool{live: map[uint64]int{}}
	err := g.call(op, func() (err error) {
		if c.Limit < 0 || c.ReleaseThreshold < 0 {
			return g.errorf(op, device.ErrInvalid, "limit %d and release threshold %d: neither may be negative", c.Limit, c.ReleaseThreshold)
		}
		if p.handle, err = g.lib.poolCreate(g.handle, c.Limit, c.ReleaseThreshold); err == nil {
			p.leak = func() string { return describeBytes("pool", p.used) + " used" }
			g.add(&p.object, "pool", 1, p.freeAll) // freed before streams, while the clock's stream still exists
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Alloc implements device.Pool.
func (p *pool) Alloc(s device.Stream, bytes int) (m device.Memory, err error) {
	const op = "pool alloc"
	own, err := p.d.streamOf(op, s)
	if err != nil {
		return m, err
	}
	err = own.call(op, func() error {
		p.liveMu.Lock()
		defer p.liveMu.Unlock()
		if p.closed.Load() {
			return p.d.errClosed(op, p.what)
		}
		if bytes <= 0 {
			return p.d.errorf(op, device.ErrInvalid, "%d bytes: give more than 0", bytes)
		}
		address, err := p.d.lib.poolAlloc(p.handle, own.handle, bytes)
		if err == nil {
			p.live[address] = bytes
			p.used += bytes
			m = device.Memory{Addr: address, Bytes: bytes}
		}
		return err
	})
	return m, err
}

// Free implements device.Pool.
func (p *pool) Free(s device.Stream, m device.Memory) error {
	const op = "pool free"
	own, err := p.d.streamOf(op, s)
	if err != nil {
		return err
	}
	return own.call(op, func() error {
		p.liveMu.Lock()
		defer p.liveMu.Unlock()
		if size, ok := p.live[m.Addr]; !ok || size != m.Bytes {
			return p.d.errorf(op, device.ErrInvalid, "%d bytes at %#x, which this pool did not hand out, or which were freed", m.Bytes, m.Addr)
		}
		if err := p.d.lib.poolFree(p.handle, own.handle, m.Addr); err != nil {
			return err
		}
		delete(p.live, m.Addr)
		p.used -= m.Bytes
		return p.freeIfDone()
	})
}

// freeIfDone frees a closed pool once all of its memory has been freed. The caller holds liveMu.
func (p *pool) freeIfDone() error {
	if !p.closed.Load() || p.freed || len(p.live) > 0 {
		return nil
	}
	p.freed = true
	p.d.remove(&p.object)
	return p.d.bounded("close pool", func() error { return p.d.lib.poolDestroy(p.handle) })
}

// Trim implements device.Pool.
func (p *pool) Trim(keep int64) error {
	const op = "trim pool"
	return p.call(op, func() error {
		if keep < 0 {
			return p.d.errorf(op, device.ErrInvalid, "keep %d bytes", keep)
		}
		return p.d.lib.poolTrim(p.handle, keep)
	})
}

// Stats implements device.Pool.
func (p *pool) Stats() (stats device.PoolStats, err error) {
	err = p.call("pool stats", func() (err error) {
		stats, err = p.d.lib.poolStats(p.handle)
		return err
	})
	return stats, err
}

// Close implements device.Pool.
func (p *pool) Close() error {
	if !p.d.hold() {
		return nil // the device's Close has freed it
	}
	defer p.d.release()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.liveMu.Lock()
	defer p.liveMu.Unlock()
	p.closed.Store(true)
	return p.freeIfDone()
}

// freeAll frees the pool and all memory allocated from it. The caller has waited for all streams.
func (p *pool) freeAll() error {
	for address := range p.live {
		if err := p.d.lib.poolFree(p.handle, p.d.clock.stream, address); err != nil {
			return err
		}
	}
	return p.d.lib.poolDestroy(p.handle)
}
