//go:build cgo

package cuda

import (
	"sync"

	"millrace/internal/device"
)

// pool is a separate CUDA memory pool.
type pool struct {
	d      *gpu
	handle poolHandle

	mu     sync.Mutex
	live   map[uint64]int // allocated bytes, by address
	used   int            // sum of the allocated bytes
	closed bool
	freed  bool // the pool is closed and the last of its memory has been freed
}

// NewPool implements device.Device.
func (d *gpu) NewPool(c device.PoolConfig) (device.Pool, error) {
	const op = "new pool"
	if err := d.beginCall(op); err != nil {
		return nil, err
	}
	defer d.release()
	if c.Limit < 0 || c.ReleaseThreshold < 0 {
		return nil, d.errorf(op, device.ErrInvalid, "limit %d and release threshold %d: neither may be negative", c.Limit, c.ReleaseThreshold)
	}
	handle, err := d.lib.poolCreate(d.handle, c.Limit, c.ReleaseThreshold)
	if err != nil {
		return nil, d.checked(err)
	}
	p := &pool{d: d, handle: handle, live: map[uint64]int{}}
	d.add(p)
	return p, nil
}

// Alloc implements device.Pool.
func (p *pool) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	const op = "pool alloc"
	own, err := p.d.streamOf(op, s)
	if err != nil {
		return device.Memory{}, err
	}
	if err := own.beginCall(op); err != nil {
		return device.Memory{}, err
	}
	defer own.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return device.Memory{}, p.d.errClosed(op, "pool")
	}
	if bytes <= 0 {
		return device.Memory{}, p.d.errorf(op, device.ErrInvalid, "%d bytes: give more than 0", bytes)
	}
	address, err := p.d.lib.poolAlloc(p.handle, own.handle, bytes)
	if err != nil {
		return device.Memory{}, p.d.checked(err)
	}
	p.live[address] = bytes
	p.used += bytes
	return device.Memory{Addr: address, Bytes: bytes}, nil
}

// Free implements device.Pool.
func (p *pool) Free(s device.Stream, m device.Memory) error {
	const op = "pool free"
	own, err := p.d.streamOf(op, s)
	if err != nil {
		return err
	}
	if err := own.beginCall(op); err != nil {
		return err
	}
	defer own.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	if size, ok := p.live[m.Addr]; !ok || size != m.Bytes {
		return p.d.errorf(op, device.ErrInvalid, "%d bytes at %#x, which this pool did not hand out, or which were freed", m.Bytes, m.Addr)
	}
	if err := p.d.lib.poolFree(p.handle, own.handle, m.Addr); err != nil {
		return p.d.checked(err)
	}
	delete(p.live, m.Addr)
	p.used -= m.Bytes
	return p.freeIfDone()
}

// freeIfDone frees a closed pool once none of its memory is allocated. The caller holds mu.
func (p *pool) freeIfDone() error {
	if !p.closed || p.freed || len(p.live) > 0 {
		return nil
	}
	p.freed = true
	p.d.remove(p)
	return p.d.bounded("close pool", func() error { return p.d.lib.poolDestroy(p.handle) })
}

// beginCall begins a call that takes no stream, and holds the pool until leave.
func (p *pool) beginCall(op string) error {
	if err := p.d.beginCall(op); err != nil {
		return err
	}
	p.mu.Lock()
	if p.closed {
		p.leave()
		return p.d.errClosed(op, "pool")
	}
	return nil
}

func (p *pool) leave() {
	p.mu.Unlock()
	p.d.release()
}

// Trim implements device.Pool.
func (p *pool) Trim(keep int64) error {
	const op = "trim pool"
	if err := p.beginCall(op); err != nil {
		return err
	}
	defer p.leave()
	if keep < 0 {
		return p.d.errorf(op, device.ErrInvalid, "keep %d bytes", keep)
	}
	return p.d.checked(p.d.lib.poolTrim(p.handle, keep))
}

// SetReleaseThreshold implements device.Pool.
func (p *pool) SetReleaseThreshold(bytes int64) error {
	const op = "set release threshold"
	if err := p.beginCall(op); err != nil {
		return err
	}
	defer p.leave()
	if bytes < 0 {
		return p.d.errorf(op, device.ErrInvalid, "%d bytes", bytes)
	}
	return p.d.checked(p.d.lib.poolSetThreshold(p.handle, bytes))
}

// Stats implements device.Pool.
func (p *pool) Stats() (device.PoolStats, error) {
	if err := p.beginCall("pool stats"); err != nil {
		return device.PoolStats{}, err
	}
	defer p.leave()
	stats, err := p.d.lib.poolStats(p.handle)
	return stats, p.d.checked(err)
}

// Close implements device.Pool.
func (p *pool) Close() error {
	if !p.d.hold() {
		return nil // the device's Close has freed it
	}
	defer p.d.release()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return p.freeIfDone()
}

func (p *pool) describe() string { return describeBytes("pool", p.used) + " used" }
func (p *pool) stage() int       { return 1 } // before streams, but the clock's stream still exists

// free frees the pool and all memory allocated from it. The caller has waited for all streams.
func (p *pool) free() error {
	for address := range p.live {
		if err := p.d.lib.poolFree(p.handle, p.d.clock.stream, address); err != nil {
			return err
		}
	}
	return p.d.lib.poolDestroy(p.handle)
}
