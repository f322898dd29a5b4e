//go:build cgo

package cuda

import (
	"sync"

	"millrace/internal/device"
)

// pool is a separate CUDA memory pool. It is freed once it is closed and the last of its memory has been freed.
type pool struct {
	object
	handle poolHandle

	liveMu sync.Mutex     // taken after the locks of the pool and of a stream
	live   map[uint64]int // allocated bytes, by address
	used   int            // sum of the allocated bytes
	freed  bool
}

// NewPool implements device.Device.
func (d *gpu) NewPool(c device.PoolConfig) (device.Pool, error) {
	const op = "new pool"
	p := &pool{live: map[uint64]int{}}
	err := d.call(op, func() (err error) {
		if c.Limit < 0 || c.ReleaseThreshold < 0 {
			return d.errorf(op, device.ErrInvalid, "limit %d and release threshold %d: neither may be negative", c.Limit, c.ReleaseThreshold)
		}
		if p.handle, err = d.lib.poolCreate(d.handle, c.Limit, c.ReleaseThreshold); err == nil {
			p.leak = func() string { return describeBytes("pool", p.used) + " used" }
			d.add(&p.object, "pool", 1, p.freeAll) // before streams, but the clock's stream still exists
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

// freeIfDone frees a closed pool once none of its memory is allocated. The caller holds liveMu.
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

// SetReleaseThreshold implements device.Pool.
func (p *pool) SetReleaseThreshold(bytes int64) error {
	const op = "set release threshold"
	return p.call(op, func() error {
		if bytes < 0 {
			return p.d.errorf(op, device.ErrInvalid, "%d bytes", bytes)
		}
		return p.d.lib.poolSetThreshold(p.handle, bytes)
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
