package software

import (
	"fmt"
	"slices"

	"millrace/internal/device"
)

// Pool allocates blocks of arenas in stream order. It implements device.Pool. It chooses blocks when Alloc is called. A
// freed block has the mark that its stream must reach, and Alloc checks whether the stream has reached it.
type Pool struct {
	dev   *Device
	limit int64

	threshold int64
	arenas    []*arena
	stats     device.PoolStats
	closed    bool
}

// NewPool implements device.Device. The limit is rounded up to a multiple of Options.PoolUnit.
func (d *Device) NewPool(c device.PoolOptions) (device.Pool, error) {
	const call = "new pool"
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.checkUsable(call); err != nil {
		return nil, err
	}
	if c.Limit < 0 || c.ReleaseThreshold < 0 {
		return nil, d.errorf(call, device.ErrInvalid,
			"limit %d and release threshold %d must not be negative", c.Limit, c.ReleaseThreshold)
	}
	limit := d.memory.limit
	if 0 < c.Limit && c.Limit < limit {
		limit = int64(roundUp(int(c.Limit), d.o.PoolUnit))
	}
	p := &Pool{dev: d, limit: limit, threshold: c.ReleaseThreshold}
	d.pools = append(d.pools, p)
	return p, d.add(call, p)
}

func (p *Pool) leak() string { return fmt.Sprintf("pool %d bytes used", p.stats.Used) }

// checkUsable returns nil if the pool accepts calls. The caller holds the lock.
func (p *Pool) checkUsable(call string) error { return p.dev.usableObject(call, p, p.closed) }

// Alloc implements device.Pool.
func (p *Pool) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	const call = "pool alloc"
	d := p.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	own, err := d.stream(call, s)
	if err != nil {
		return device.Memory{}, err
	}
	if err := p.checkUsable(call); err != nil {
		return device.Memory{}, err
	}
	if bytes <= 0 {
		return device.Memory{}, d.errorf(call, device.ErrInvalid, "%d bytes: ask for at least 1", bytes)
	}
	if err := d.inject(call); err != nil {
		return device.Memory{}, err
	}
	if int64(bytes) > p.limit {
		return device.Memory{}, d.errorf(call, device.ErrOutOfMemory, "%d bytes: the pool's limit is %d", bytes, p.limit)
	}
	size := roundUp(bytes, Alignment)
	a, i := p.search(own, size)
	if a == nil && p.grow(size) {
		a, i = p.search(own, size)
	}
	if a == nil {
		return device.Memory{}, d.errorf(call, device.ErrOutOfMemory,
			"%d bytes: the pool has reserved %d of its limit of %d, and %d are allocated; %s",
			bytes, p.stats.Reserved, p.limit, p.stats.Used, d.memory.room())
	}
	p.stats.Used += int64(size)
	p.stats.UsedHigh = max(p.stats.UsedHigh, p.stats.Used)
	begun := &a.seg.life
	if d.o.Strict {
		begun = new(life)
	}
	return a.take(i, size, bytes, begun), nil
}

// search returns the arena and the index of the smallest sufficient block that s may use now, or a nil arena. It merges
// free blocks first. If no block is large enough, it also merges neighbors that only s may use.
func (p *Pool) search(s *Stream, size int) (*arena, int) {
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

func (p *Pool) smallest(s *Stream, size int) (best *arena, at int) {
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

// grow takes an arena for a block of the given size from the device. If the arena doesn't fit, grow first releases idle
// arenas, which are all too small. It returns false if the arena still doesn't fit.
func (p *Pool) grow(size int) bool {
	seg := p.segment(size)
	for i := len(p.arenas) - 1; seg == nil && i >= 0; i-- {
		if p.release(i) {
			seg = p.segment(size)
		}
	}
	if seg == nil {
		return false
	}
	p.arenas = append(p.arenas, &arena{seg: seg, blocks: []block{{size: len(seg.mem)}}})
	p.stats.Reserved += int64(len(seg.mem))
	p.stats.ReservedHigh = max(p.stats.ReservedHigh, p.stats.Reserved)
	return true
}

// segment takes at least size bytes from the device. It returns nil if the pool's or the device's limit would be
// exceeded.
func (p *Pool) segment(size int) *segment {
	memory := &p.dev.memory
	room := min(p.limit-p.stats.Reserved, memory.left())
	bytes := min(roundUp(size, Granule), int(room/Alignment*Alignment))
	if int64(size) > room || !memory.reserve(bytes) {
		return nil
	}
	return memory.insert(memory.make(bytes), p)
}

// release returns arena i to the device if it is idle, and reports whether it did.
func (p *Pool) release(i int) bool {
	a := p.arenas[i]
	if !a.isIdle() {
		return false
	}
	p.dev.memory.remove(a.seg)
	p.stats.Reserved -= int64(len(a.seg.mem))
	p.arenas = slices.Delete(p.arenas, i, i+1)
	return true
}

// shrink releases the idle arenas, newest first. It skips an arena if may returns false for the arena's size.
func (p *Pool) shrink(may func(size int64) bool) {
	for i := len(p.arenas) - 1; i >= 0; i-- {
		if may(int64(len(p.arenas[i].seg.mem))) {
			p.release(i)
		}
	}
}

// Free implements device.Pool. The memory m must be a whole allocation. Free also works on a closed pool.
func (p *Pool) Free(s device.Stream, m device.Memory) error {
	const call = "pool free"
	d := p.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	own, err := d.stream(call, s)
	if err != nil {
		return err
	}
	if err := own.admit(call); err != nil {
		return err
	}
	b, seg := p.blockOver(m)
	if b == nil || b.asked != m.Bytes || seg.base+uint64(b.off) != m.Addr {
		return d.misuse(call, "%v is not a whole live allocation of this pool", span(m))
	}
	o := own.op(Free)
	o.pool, o.Bytes, o.freed = p, m.Bytes, use{seg.bytes(m), b.life}
	if device.Invariants {
		own.mustComeFirst(o.freed.mem)
	}
	p.stats.Used -= int64(b.size)
	b.used, b.freed = false, mark{own, own.dev.seq + 1}
	own.enqueue(o)
	return nil
}

// reclaim is called when a stream has reached the free of an allocation.
func (p *Pool) reclaim(freed use) {
	if p.dev.o.Strict { // the allocation has its own life
		freed.life.over.Store(true)
	}
	if device.Invariants {
		fill(freed.mem, poison)
	}
	p.releaseIfClosed()
}

// blockOver returns the allocated block that contains m, and the block's segment, or nil if there is no such block.
func (p *Pool) blockOver(m device.Memory) (*block, *segment) {
	for _, a := range p.arenas {
		if b := a.blockOver(m.Addr); b != nil {
			inside := m.Addr - a.seg.base - uint64(b.off)
			if b.used && m.Bytes >= 0 && inside+uint64(m.Bytes) <= uint64(b.asked) {
				return b, a.seg
			}
		}
	}
	return nil, nil
}

// Trim implements device.Pool. It releases only whole idle arenas. At least keep bytes stay reserved.
func (p *Pool) Trim(keep int64) error {
	const call = "pool trim"
	p.dev.Mu.Lock()
	defer p.dev.Mu.Unlock()
	if err := p.checkUsable(call); err != nil {
		return err
	}
	if keep < 0 {
		return p.dev.errorf(call, device.ErrInvalid, "keep %d bytes: must not be negative", keep)
	}
	p.shrink(func(size int64) bool { return p.stats.Reserved-size >= keep })
	return nil
}

// Stats implements device.Pool. It reports memory as used until Free is called, in whole blocks (multiples of
// Alignment).
func (p *Pool) Stats() (device.PoolStats, error) {
	p.dev.Mu.Lock()
	defer p.dev.Mu.Unlock()
	if err := p.checkUsable("pool stats"); err != nil {
		return device.PoolStats{}, err
	}
	return p.stats, nil
}

// Close implements device.Pool. On a lost device it frees the pool and returns ErrLost.
func (p *Pool) Close() error {
	p.dev.Mu.Lock()
	defer p.dev.Mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	delete(p.dev.open, p)
	p.releaseIfClosed()
	return p.dev.Err()
}

// releaseIfClosed releases the unused memory of a closed pool.
func (p *Pool) releaseIfClosed() {
	if p.closed {
		p.shrink(func(int64) bool { return true })
	}
}

// releasePools returns idle memory of all pools to the device. Each pool keeps at least its release threshold of unused
// memory. The caller holds the lock.
func (d *Device) releasePools() {
	d.pools = slices.DeleteFunc(d.pools, func(p *Pool) bool {
		p.releaseIfClosed()
		p.shrink(func(size int64) bool { return p.stats.Reserved-p.stats.Used-size >= p.threshold })
		return p.closed && p.stats.Reserved == 0
	})
}

// block is a span of an arena.
type block struct {
	off, size int   // multiples of Alignment
	asked     int   // size that the caller requested, if the block is allocated
	used      bool  // whether the block is allocated
	freed     mark  // mark of the last free; zero once the stream has reached it
	life      *life // life of the allocation or, if the device is not strict, of the segment
}

// usableBy reports whether work that s enqueues from now on may use the block. The block must be free, and no other
// stream may still have work on it.
func (b *block) usableBy(s *Stream) bool {
	return !b.used && (b.freed.stream == nil || b.freed.stream == s)
}

// arena is one segment that is divided into blocks without gaps, in address order.
type arena struct {
	seg    *segment
	blocks []block
}

// settle clears the marks that streams have reached, and merges free neighbors that were freed on the same stream or
// have no mark.
func (a *arena) settle() {
	for i := range a.blocks {
		if b := &a.blocks[i]; !b.used && b.freed.passed() {
			b.freed = mark{}
		}
	}
	a.mergeFor(nil)
}

// mergeFor merges free neighbors that were freed on the same stream or have no mark. It also merges neighbors that s may
// use, even if other streams could use only one of them. s may be nil.
func (a *arena) mergeFor(s *Stream) {
	last := 0
	for i := 1; i < len(a.blocks); i++ {
		x, y := &a.blocks[last], &a.blocks[i]
		if !x.joins(y, s) {
			if last++; last != i {
				a.blocks[last] = *y
			}
			continue
		}
		x.size += y.size
		if y.freed.seq > x.freed.seq {
			x.freed = y.freed // both marks are of the same stream, or x had no mark
		}
	}
	clear(a.blocks[last+1:]) // so that unused entries don't keep a stream reachable
	a.blocks = a.blocks[:last+1]
}

// joins reports whether b and its neighbor next may be merged for s.
func (b *block) joins(next *block, s *Stream) bool {
	if b.used || next.used {
		return false
	}
	return b.freed.stream == next.freed.stream || b.usableBy(s) && next.usableBy(s)
}

// take allocates the first size bytes of block i, which must be free and large enough. asked is the size that the caller
// requested, and of is the life of the allocation.
func (a *arena) take(i, size, asked int, of *life) device.Memory {
	b := a.blocks[i]
	if rest := b.size - size; rest > 0 {
		a.blocks = slices.Insert(a.blocks, i+1, block{off: b.off + size, size: rest, freed: b.freed})
	}
	a.blocks[i] = block{off: b.off, size: size, asked: asked, used: true, life: of}
	return device.Memory{Addr: a.seg.base + uint64(b.off), Bytes: asked}
}

// blockOver returns the block that covers addr, or nil if addr is not in this arena.
func (a *arena) blockOver(addr uint64) *block {
	if addr < a.seg.base || addr-a.seg.base >= uint64(len(a.seg.mem)) {
		return nil
	}
	off := int(addr - a.seg.base)
	i, exact := slices.BinarySearchFunc(a.blocks, off, func(b block, off int) int { return b.off - off })
	if !exact {
		i--
	}
	return &a.blocks[i]
}

// isIdle reports whether the whole arena is free and streams have reached all its marks.
func (a *arena) isIdle() bool {
	a.settle()
	return len(a.blocks) == 1 && !a.blocks[0].used && a.blocks[0].freed.stream == nil
}
