package software

import (
	"fmt"
	"slices"
	"sync"

	"millrace/internal/device"
)

// Granule is the unit in which pools take memory from the device, in bytes. It is a GPU's unit. A pool with less memory
// left takes the rest.
const Granule = 2 << 20

// Pool allocates blocks of arenas in stream order. It makes all decisions at the call: a freed block carries the mark
// that its stream has to pass, and a later allocation checks whether the stream has passed it. Methods are safe for
// concurrent use.
type Pool struct {
	space *Space
	limit int64

	mu        sync.Mutex
	threshold int64
	arenas    []*arena
	stats     device.PoolStats
	closed    bool
}

// NewPool creates a pool. Its limit is rounded up to Alignment. It fails with device.ErrInvalid for negative values.
func (s *Space) NewPool(c device.PoolConfig) (*Pool, error) {
	if err := s.usable("new pool"); err != nil {
		return nil, err
	}
	if c.Limit < 0 || c.ReleaseThreshold < 0 {
		return nil, s.errorf("new pool", device.ErrInvalid,
			"limit %d and release threshold %d must not be negative", c.Limit, c.ReleaseThreshold)
	}
	limit := s.limit
	if 0 < c.Limit && c.Limit < limit {
		limit = int64(roundUp(int(c.Limit), Alignment))
	}
	p := &Pool{space: s, limit: limit, threshold: c.ReleaseThreshold}
	s.poolsMu.Lock()
	defer s.poolsMu.Unlock()
	s.pools = append(s.pools, p)
	return p, nil
}

// usable returns nil if the pool accepts calls. The caller holds mu.
func (p *Pool) usable(call string) error {
	if err := p.space.usable(call); err != nil {
		return err
	}
	if p.closed {
		return p.space.errorf(call, device.ErrClosed, "the pool was closed")
	}
	return nil
}

// Alloc returns memory of that many bytes (> 0) for work that s enqueues from now on.
func (p *Pool) Alloc(s Stream, bytes int) (device.Memory, error) {
	const call = "pool alloc"
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(call); err != nil {
		return device.Memory{}, err
	}
	if bytes <= 0 {
		return device.Memory{}, p.space.errorf(call, device.ErrInvalid, "%d bytes: ask for at least 1", bytes)
	}
	if int64(bytes) > p.limit {
		return device.Memory{}, p.space.errorf(call, device.ErrOutOfMemory, "%d bytes: the pool's limit is %d", bytes, p.limit)
	}
	size := roundUp(bytes, Alignment)
	a, i := p.search(s, size)
	if a == nil && p.grow(size) {
		a, i = p.search(s, size)
	}
	if a == nil {
		return device.Memory{}, p.space.errorf(call, device.ErrOutOfMemory,
			"%d bytes: the pool has taken %d of its limit of %d, %d are handed out; %s",
			bytes, p.stats.Reserved, p.limit, p.stats.Used, p.space.room())
	}
	p.stats.Used += int64(size)
	p.stats.UsedHigh = max(p.stats.UsedHigh, p.stats.Used)
	return a.take(i, size, bytes), nil
}

// search returns the smallest free block that s may use now. It merges free blocks first, and merges more of them if
// none is large enough. The caller holds mu.
func (p *Pool) search(s Stream, size int) (*arena, int) {
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

func (p *Pool) smallest(s Stream, size int) (best *arena, at int) {
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

// grow takes an arena that can hold a block of size from the space. If the arena doesn't fit, grow first releases idle
// arenas, all of which are too small. The caller holds mu.
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
	p.arenas = append(p.arenas, newArena(seg))
	p.stats.Reserved += int64(len(seg.mem))
	p.stats.ReservedHigh = max(p.stats.ReservedHigh, p.stats.Reserved)
	return true
}

// segment takes at least size bytes from the space. It returns nil if that exceeds the limit of the pool or the space.
// The caller holds mu.
func (p *Pool) segment(size int) *segment {
	room := min(p.limit-p.stats.Reserved, p.space.left())
	if int64(size) > room {
		return nil
	}
	return p.space.take(min(roundUp(size, Granule), int(room/Alignment*Alignment)), p)
}

// release returns arena i to the space if it is idle. The caller holds mu.
func (p *Pool) release(i int) bool {
	a := p.arenas[i]
	if !a.idle() {
		return false
	}
	p.space.give(a.seg)
	p.stats.Reserved -= int64(len(a.seg.mem))
	p.arenas = slices.Delete(p.arenas, i, i+1)
	return true
}

// shrink releases idle arenas, the newest first, if may accepts their sizes. The caller holds mu.
func (p *Pool) shrink(may func(size int64) bool) {
	for i := len(p.arenas) - 1; i >= 0; i-- {
		if may(int64(len(p.arenas[i].seg.mem))) {
			p.release(i)
		}
	}
}

// Free frees the allocation m once s has passed the operation that enqueue adds to it. If enqueue fails or panics, m
// stays allocated. Free fails with device.ErrInvalid if m is not a whole allocation. It also works on a closed pool.
func (p *Pool) Free(s Stream, m device.Memory, enqueue func() (operation uint64, err error)) error {
	// The stream may be full, so the pool must not be locked while enqueue adds the operation. Until then the block
	// counts neither as used nor as free.
	if !p.change(m, blockUsed, blockFreeing, mark{}) {
		return p.space.errorf("pool free", device.ErrInvalid, "%v is not a whole live allocation of this pool", Span(m))
	}
	state, freed := blockUsed, mark{}
	defer func() { p.change(m, blockFreeing, state, freed) }()
	operation, err := enqueue()
	if err != nil {
		return err
	}
	state, freed = blockFree, mark{s, operation}
	return nil
}

// change moves the block that was handed out as m to the next state. It returns false if no such block is in state
// from.
func (p *Pool) change(m device.Memory, from, to blockState, freed mark) bool {
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

// blockAt returns the block that starts at addr, or nil if there is none. The caller holds mu.
func (p *Pool) blockAt(addr uint64) *block {
	for _, a := range p.arenas {
		if b := a.blockOver(addr); b != nil && a.seg.base+uint64(b.off) == addr {
			return b
		}
	}
	return nil
}

// find returns the start address of the block that contains m, or false if no allocated block does.
func (p *Pool) find(m device.Memory) (base uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.arenas {
		if b := a.blockOver(m.Addr); b != nil {
			base = a.seg.base + uint64(b.off)
			return base, b.state == blockUsed && m.Addr-base+uint64(m.Bytes) <= uint64(b.asked)
		}
	}
	return 0, false
}

// Trim releases idle memory as long as at least keep bytes stay reserved. It releases memory in the pieces in which the
// pool took it.
func (p *Pool) Trim(keep int64) error {
	const call = "pool trim"
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(call); err != nil {
		return err
	}
	if keep < 0 {
		return p.space.errorf(call, device.ErrInvalid, "keep %d bytes: must not be negative", keep)
	}
	p.shrink(func(size int64) bool { return p.stats.Reserved-size >= keep })
	return nil
}

// SetReleaseThreshold changes how many unused bytes Release keeps.
func (p *Pool) SetReleaseThreshold(bytes int64) error {
	const call = "pool release threshold"
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(call); err != nil {
		return err
	}
	if bytes < 0 {
		return p.space.errorf(call, device.ErrInvalid, "%d bytes: must not be negative", bytes)
	}
	p.threshold = bytes
	return nil
}

// Stats returns the pool's counters. Memory counts as used until Free is called, in whole blocks: a multiple of
// Alignment.
func (p *Pool) Stats() (device.PoolStats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable("pool stats"); err != nil {
		return device.PoolStats{}, err
	}
	return p.stats, nil
}

// Close makes later calls of Alloc fail. The first Release after all Frees have been passed returns the pool's memory.
// Close returns false if the pool was closed before.
func (p *Pool) Close() (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first = !p.closed
	p.closed = true
	return first
}

// Closed reports whether Close was called.
func (p *Pool) Closed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// Release returns idle memory as long as unused memory of the release threshold remains, or all of it if the pool is
// closed. A device calls it when it synchronizes. It reports whether the pool is closed and empty.
func (p *Pool) Release() (gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shrink(func(size int64) bool {
		return p.closed || p.stats.Reserved-p.stats.Used-size >= p.threshold
	})
	return p.closed && p.stats.Reserved == 0
}

// Leak describes a pool that was not closed.
func (p *Pool) Leak() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("pool %d bytes used", p.stats.Used)
}
