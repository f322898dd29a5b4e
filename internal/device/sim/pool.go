package sim

import (
	"slices"

	"millrace/internal/device"
)

// granularity is what a pool takes from the device at a time, as CUDA's pools do, so that small
// allocations share a chunk. A pool with less room takes what there is.
const granularity = 2 << 20

// Pool is a device.Pool. It takes chunks from the device and cuts them.
type Pool struct {
	dev       *Device
	limit     int64
	threshold int64
	chunks    []*chunk
	stats     device.PoolStats
	closed    bool
}

// NewPool implements device.Device. The limit is rounded up to 256 bytes.
func (d *Device) NewPool(c device.PoolConfig) (device.Pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("new pool"); err != nil {
		return nil, err
	}
	if c.Limit < 0 || c.ReleaseThreshold < 0 {
		return nil, d.invalid("new pool", "limit %d, release threshold %d: must not be negative", c.Limit, c.ReleaseThreshold)
	}
	limit := d.deviceSpace.limit
	if c.Limit > 0 && c.Limit < limit {
		limit = roundUp(c.Limit, alignment)
	}
	p := &Pool{dev: d, limit: limit, threshold: c.ReleaseThreshold}
	d.pools = append(d.pools, p)
	return p, nil
}

// usable returns why the pool cannot be used, nil if it can. The lock is held.
func (p *Pool) usable(call string) error {
	if err := p.dev.usable(call); err != nil {
		return err
	}
	if p.closed {
		return device.Errorf(call, p.dev.info.ID, device.ErrClosed, "the pool was closed")
	}
	return nil
}

// Alloc implements device.Pool.
func (p *Pool) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	const call = "pool alloc"
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.usable(call); err != nil {
		return device.Memory{}, err
	}
	stream, err := d.stream(call, s)
	if err != nil {
		return device.Memory{}, err
	}
	if bytes <= 0 {
		return device.Memory{}, d.invalid(call, "%d bytes: must be more than 0", bytes)
	}
	d.counts.poolAllocs++
	if _, ok := d.match(OutOfMemory, d.counts.poolAllocs); ok {
		return device.Memory{}, device.Errorf(call, d.info.ID, device.ErrOutOfMemory, "injected")
	}
	a := p.take(stream, bytes)
	if a == nil {
		return device.Memory{}, device.Errorf(call, d.info.ID, device.ErrOutOfMemory,
			"%d bytes asked for, %d used and %d reserved of %d", bytes, p.stats.Used, p.stats.Reserved, p.limit)
	}
	d.deviceSpace.insert(a)
	p.stats.Used += roundUp(int64(bytes), alignment)
	p.stats.UsedHigh = max(p.stats.UsedHigh, p.stats.Used)
	return device.Memory{Addr: a.base, Bytes: bytes}, nil
}

// take finds room for bytes that s may use: in the chunks at hand, in a new one, or in a new one that
// takes the place of unused ones. It returns nil if there is none.
func (p *Pool) take(s *Stream, bytes int) *allocation {
	if int64(bytes) > p.limit {
		return nil
	}
	a := &allocation{pool: p}
	for _, c := range p.chunks {
		if c.carve(s, a, bytes) {
			return a
		}
	}
	c := p.grow(int64(bytes))
	if c == nil {
		p.shrink(func(int64) bool { return true })
		c = p.grow(int64(bytes))
	}
	if c == nil || !c.carve(s, a, bytes) {
		return nil
	}
	return a
}

// grow takes a chunk with room for bytes from the device. It returns nil if the limit or the device's
// memory stands against it.
func (p *Pool) grow(bytes int64) *chunk {
	space := &p.dev.deviceSpace
	room := min(p.limit-p.stats.Reserved, space.limit-space.used) / alignment * alignment
	size := min(roundUp(bytes, granularity), room)
	if size < roundUp(bytes, alignment) {
		return nil
	}
	c := newChunk(p.dev.addresses(size), int(size))
	p.chunks = append(p.chunks, c)
	space.used += size
	p.stats.Reserved += size
	p.stats.ReservedHigh = max(p.stats.ReservedHigh, p.stats.Reserved)
	return c
}

// shrink gives every unused chunk back to the device that may says can go, given its size.
func (p *Pool) shrink(may func(size int64) bool) {
	p.chunks = slices.DeleteFunc(p.chunks, func(c *chunk) bool {
		size := int64(len(c.data))
		if !c.unused() || !may(size) {
			return false
		}
		p.stats.Reserved -= size
		p.dev.deviceSpace.used -= size
		return true
	})
}

// Free implements device.Pool. It works on a closed pool too.
func (p *Pool) Free(s device.Stream, m device.Memory) error {
	const call = "pool free"
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	stream, err := d.stream(call, s)
	if err != nil {
		return err
	}
	a, err := d.whole(call, m, p)
	if err != nil {
		return err
	}
	f := &fence{stream: stream}
	p.segmentOf(a).free(f)
	d.deviceSpace.remove(a)
	p.stats.Used -= roundUp(int64(len(a.data)), alignment)
	stream.enqueue(&op{kind: Free, bytes: len(a.data), effect: func() error {
		p.freed(a, f)
		return nil
	}})
	return nil
}

// freed is the instant at which the stream that freed a gets there.
func (p *Pool) freed(a *allocation, f *fence) {
	f.reached = true
	a.dead = true
	if device.Invariants {
		paint(a.data, poison)
	}
	p.retire()
}

// segmentOf finds the segment that a takes.
func (p *Pool) segmentOf(a *allocation) *segment {
	for _, c := range p.chunks {
		if off := a.base - c.base; off < uint64(len(c.data)) {
			return c.owned(a)
		}
	}
	panic("sim: pool memory that lies in none of the pool's chunks")
}

// Trim implements device.Pool. Only whole chunks go back.
func (p *Pool) Trim(keep int64) error {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if err := p.usable("trim"); err != nil {
		return err
	}
	if keep < 0 {
		return p.dev.invalid("trim", "keep %d bytes: must not be negative", keep)
	}
	p.shrink(func(size int64) bool { return p.stats.Reserved-size >= keep })
	return nil
}

// releaseUnused is what a synchronization does to the pool: whole unused chunks go back, but never so many
// that fewer unused bytes than the release threshold stay.
func (p *Pool) releaseUnused() {
	p.shrink(func(size int64) bool { return p.stats.Reserved-p.stats.Used-size >= p.threshold })
}

// SetReleaseThreshold implements device.Pool.
func (p *Pool) SetReleaseThreshold(bytes int64) error {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if err := p.usable("set release threshold"); err != nil {
		return err
	}
	if bytes < 0 {
		return p.dev.invalid("set release threshold", "%d bytes: must not be negative", bytes)
	}
	p.threshold = bytes
	return nil
}

// Stats implements device.Pool. Memory counts as used until Free is called, not until the stream gets
// there, and rounded up to 256 bytes.
func (p *Pool) Stats() (device.PoolStats, error) {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if err := p.usable("pool stats"); err != nil {
		return device.PoolStats{}, err
	}
	return p.stats, nil
}

// Close implements device.Pool. On a lost device it gives the pool back and returns ErrLost.
func (p *Pool) Close() error {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	p.retire()
	return p.dev.usable("close pool")
}

// retire gives a closed pool's memory back once all of it is unused.
func (p *Pool) retire() {
	if !p.closed {
		return
	}
	p.shrink(func(int64) bool { return true })
	if len(p.chunks) == 0 {
		p.dev.pools = slices.DeleteFunc(p.dev.pools, func(o *Pool) bool { return o == p })
	}
}
