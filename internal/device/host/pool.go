package host

import (
	"fmt"
	"slices"
	"sync"

	"millrace/internal/device"
)

// granule is the unit in which pools take memory from the device, in bytes: a GPU's.
const granule = 2 << 20

// pool hands out blocks of arenas. All its decisions are taken at the call: a freed block carries the mark
// its stream has to reach, and whoever wants it looks at whether that has happened.
type pool struct {
	dev   *Device
	limit int64 // a multiple of granule; 0 for none

	mu        sync.Mutex
	threshold int64
	arenas    []*arena
	stats     device.PoolStats
	closed    bool
}

// NewPool implements device.Device. The limit is rounded up to 2 MiB.
func (d *Device) NewPool(c device.PoolConfig) (device.Pool, error) {
	const call = "new pool"
	if c.Limit < 0 || c.ReleaseThreshold < 0 {
		return nil, d.errorf(call, device.ErrInvalid, "limit %d and release threshold %d must not be negative", c.Limit, c.ReleaseThreshold)
	}
	limit := min(c.Limit, d.info.Memory)
	p := &pool{dev: d, limit: int64(roundUp(int(limit), granule)), threshold: c.ReleaseThreshold}
	if err := d.register(call, p); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *pool) leak() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("pool %d bytes used", p.stats.Used)
}

// usable is nil while the pool takes calls. The caller holds mu.
func (p *pool) usable(call string) error {
	if err := p.dev.usable(call); err != nil {
		return err
	}
	if p.closed {
		return p.dev.errorf(call, device.ErrClosed, "the pool was closed")
	}
	return nil
}

// Alloc implements device.Pool.
func (p *pool) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	const call = "pool alloc"
	own, err := p.dev.ownStream(call, s)
	if err != nil {
		return device.Memory{}, err
	}
	if err := own.check(call); err != nil {
		return device.Memory{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(call); err != nil {
		return device.Memory{}, err
	}
	if bytes <= 0 {
		return device.Memory{}, p.dev.errorf(call, device.ErrInvalid, "%d bytes: ask for at least 1", bytes)
	}
	if int64(bytes) > p.dev.info.Memory {
		return device.Memory{}, p.dev.errorf(call, device.ErrOutOfMemory, "%d bytes: the device has %d", bytes, p.dev.info.Memory)
	}
	size := roundUp(bytes, alignment)
	a, i := p.find(own, size)
	if a == nil && p.grow(size) {
		a, i = p.find(own, size)
	}
	if a == nil {
		return device.Memory{}, p.dev.errorf(call, device.ErrOutOfMemory,
			"%d bytes: the pool has taken %d of its limit of %d (0: none), %d are handed out; %s",
			bytes, p.stats.Reserved, p.limit, p.stats.Used, p.dev.memory.room())
	}
	p.stats.Used += int64(size)
	p.stats.UsedHigh = max(p.stats.UsedHigh, p.stats.Used)
	return a.take(i, size, bytes), nil
}

// find looks for the smallest free block that s may use now. Blocks are put together first, more boldly if
// nothing fits. The caller holds mu.
func (p *pool) find(s *stream, size int) (*arena, int) {
	for _, a := range p.arenas {
		a.settle()
	}
	if a, i := p.smallest(s, size); a != nil {
		return a, i
	}
	for _, a := range p.arenas {
		a.mergeFor(s)
	}
	return p.smallest(s, size)
}

func (p *pool) smallest(s *stream, size int) (best *arena, at int) {
	for _, a := range p.arenas {
		for i := range a.blocks {
			b := &a.blocks[i]
			if b.usableBy(s) && b.size >= size && (best == nil || b.size < best.blocks[at].size) {
				best, at = a, i
			}
		}
	}
	return best, at
}

// grow takes an arena from the device that a block of size fits in. Idle arenas, all of them too small, go
// back first if the limit asks for it. The caller holds mu.
func (p *pool) grow(size int) bool {
	size = roundUp(size, granule)
	if p.limit > 0 {
		if int64(size) > p.limit {
			return false
		}
		p.releaseWhile(func() bool { return p.stats.Reserved+int64(size) > p.limit })
		if p.stats.Reserved+int64(size) > p.limit {
			return false
		}
	}
	seg := p.dev.memory.take(size, p)
	if seg == nil {
		p.releaseWhile(func() bool { return true })
		seg = p.dev.memory.take(size, p)
	}
	if seg == nil {
		return false
	}
	p.arenas = append(p.arenas, newArena(seg))
	p.stats.Reserved += int64(size)
	p.stats.ReservedHigh = max(p.stats.ReservedHigh, p.stats.Reserved)
	return true
}

// releaseWhile gives idle arenas back, the youngest first, as long as more says so. The caller holds mu.
func (p *pool) releaseWhile(more func() bool) {
	for i := len(p.arenas) - 1; i >= 0 && more(); i-- {
		a := p.arenas[i]
		a.settle()
		if !a.idle() {
			continue
		}
		p.dev.memory.give(a.seg)
		p.stats.Reserved -= int64(len(a.seg.mem))
		p.arenas = slices.Delete(p.arenas, i, i+1)
	}
}

// Free implements device.Pool. m must be what Alloc returned, whole.
func (p *pool) Free(s device.Stream, m device.Memory) error {
	const call = "pool free"
	own, err := p.dev.ownStream(call, s)
	if err != nil {
		return err
	}
	if err := p.dev.usable(call); err != nil {
		return err
	}
	// The queue may be full, so the pool must not be locked while the operation is added. Meanwhile the
	// block counts neither as used nor as free.
	if !p.change(m, blockUsed, blockFreeing, mark{}) {
		return p.dev.misuse(call, "%v is not a whole live allocation of this pool", span(m))
	}
	seq, err := p.enqueueFree(own, m)
	if err != nil {
		return err
	}
	p.change(m, blockFreeing, blockFree, mark{own, seq})
	return nil
}

// enqueueFree puts the free on the stream. If that fails, by an error or a panic, m is still handed out.
func (p *pool) enqueueFree(s *stream, m device.Memory) (seq uint64, err error) {
	ok := false
	defer func() {
		if !ok {
			p.change(m, blockFreeing, blockUsed, mark{})
		}
	}()
	seq, err = s.enqueue("pool free", &op{kind: opFree, dst: m})
	ok = err == nil
	return seq, err
}

// change moves the block that was handed out as m from one state to the next. It is false if there is no
// such block in the state from.
func (p *pool) change(m device.Memory, from, to blockState, freed mark) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.blockAt(m.Addr)
	if b == nil || b.state != from || b.asked != m.Bytes {
		return false
	}
	b.state, b.freed = to, freed
	if to == blockFree {
		p.stats.Used -= int64(b.size)
	}
	return true
}

// blockAt finds the block that starts at addr; nil if none does. The caller holds mu.
func (p *pool) blockAt(addr uint64) *block {
	for _, a := range p.arenas {
		if b := a.blockOver(addr); b != nil && a.seg.base+uint64(b.off) == addr {
			return b
		}
	}
	return nil
}

// live says whether m lies in one block that is handed out.
func (p *pool) live(m device.Memory) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.arenas {
		b := a.blockOver(m.Addr)
		if b != nil && b.state == blockUsed && m.Addr+uint64(m.Bytes) <= a.seg.base+uint64(b.off+b.asked) {
			return true
		}
	}
	return false
}

// Trim implements device.Pool. Memory goes back in the pieces in which it was taken, so the pool may end
// below keep.
func (p *pool) Trim(keep int64) error {
	const call = "pool trim"
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(call); err != nil {
		return err
	}
	if keep < 0 {
		return p.dev.errorf(call, device.ErrInvalid, "keep %d bytes: must not be negative", keep)
	}
	p.releaseWhile(func() bool { return p.stats.Reserved > keep })
	return nil
}

// SetReleaseThreshold implements device.Pool.
func (p *pool) SetReleaseThreshold(bytes int64) error {
	const call = "pool release threshold"
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(call); err != nil {
		return err
	}
	if bytes < 0 {
		return p.dev.errorf(call, device.ErrInvalid, "%d bytes: must not be negative", bytes)
	}
	p.threshold = bytes
	return nil
}

// Stats implements device.Pool. Used counts whole blocks, so it is a multiple of 256.
func (p *pool) Stats() (device.PoolStats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable("pool stats"); err != nil {
		return device.PoolStats{}, err
	}
	return p.stats, nil
}

// Close implements device.Pool.
func (p *pool) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	p.dev.unregister(p)
	p.dev.releasePools()
	return p.dev.Err()
}

// release gives back unused memory above the threshold, or all of it once the pool is closed. It says
// whether the pool is closed and empty, and done with.
func (p *pool) release() (gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := p.threshold
	if p.closed {
		keep = 0
	}
	p.releaseWhile(func() bool { return p.stats.Reserved-p.stats.Used > keep })
	return p.closed && p.stats.Reserved == 0
}

// releasePools lets every pool give back what it need not keep.
func (d *Device) releasePools() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pools = slices.DeleteFunc(d.pools, (*pool).release)
}
