package host

import (
	"fmt"
	"slices"
	"sync"

	"millrace/internal/device"
)

const (
	// alignment is what device.Pool promises, and the unit blocks are rounded to.
	alignment = 256

	// segmentGap is the unmapped space between two segments, in bytes, so that running over the end of
	// one is a fault and not a write to its neighbour.
	segmentGap = 4096

	// poison fills memory whose content is undefined, under the invariants tag.
	poison = 0xDB
)

// segment is device memory taken in one piece: an allocation of Device.Alloc, or what a pool cuts up.
type segment struct {
	base uint64
	mem  []byte
	pool *pool // nil for Device.Alloc
}

// addressSpace is all device memory: segments at addresses that are never used twice, so that memory used
// after Device.Free is a fault for certain.
type addressSpace struct {
	limit int64

	mu       sync.RWMutex
	segments []*segment // by base, ascending
	next     uint64     // base of the next segment
	used     int64
}

// take maps a new segment, or returns nil if the limit leaves no room.
func (a *addressSpace) take(bytes int, p *pool) *segment {
	if int64(bytes) > a.limit {
		return nil // also keeps the sums below from overflowing
	}
	size := roundUp(bytes, alignment)
	if !a.reserve(int64(size)) {
		return nil
	}
	// Large memory takes long to clear, so nobody waits for it with the lock held.
	seg := &segment{mem: make([]byte, size)[:bytes], pool: p}
	if device.Invariants {
		fill(seg.mem, poison)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	seg.base = a.next
	a.next += uint64(roundUp(size, segmentGap) + segmentGap)
	a.segments = append(a.segments, seg)
	return seg
}

// reserve counts bytes against the limit; false if they would pass it.
func (a *addressSpace) reserve(bytes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used+bytes > a.limit {
		return false
	}
	a.used += bytes
	return true
}

// give unmaps a segment. Giving one twice does nothing.
func (a *addressSpace) give(seg *segment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := a.index(seg.base); i >= 0 && a.segments[i] == seg {
		a.remove(i)
	}
}

// drop unmaps an allocation of Device.Alloc. It is false if m is not one, whole.
func (a *addressSpace) drop(m device.Memory) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.index(m.Addr)
	if i < 0 {
		return false
	}
	seg := a.segments[i]
	if seg.base != m.Addr || len(seg.mem) != m.Bytes || seg.pool != nil {
		return false
	}
	a.remove(i)
	return true
}

// remove unmaps segment i. The caller holds mu.
func (a *addressSpace) remove(i int) {
	a.used -= int64(roundUp(len(a.segments[i].mem), alignment))
	a.segments = slices.Delete(a.segments, i, i+1)
}

// index finds the last segment that starts at or below addr; -1 if there is none. The caller holds mu.
func (a *addressSpace) index(addr uint64) int {
	i, exact := slices.BinarySearchFunc(a.segments, addr, func(s *segment, addr uint64) int {
		switch {
		case s.base < addr:
			return -1
		case s.base > addr:
			return 1
		}
		return 0
	})
	if exact {
		return i
	}
	return i - 1
}

// lookup finds the segment that holds all of m; nil if none does.
func (a *addressSpace) lookup(m device.Memory) *segment {
	a.mu.RLock()
	defer a.mu.RUnlock()
	i := a.index(m.Addr)
	if i < 0 || m.Bytes < 0 {
		return nil
	}
	seg := a.segments[i]
	if off := m.Addr - seg.base; off > uint64(len(seg.mem)) || uint64(m.Bytes) > uint64(len(seg.mem))-off {
		return nil
	}
	return seg
}

// resolve gives the bytes at m; false if they are not all in one segment.
func (a *addressSpace) resolve(m device.Memory) ([]byte, bool) {
	if m.Bytes == 0 {
		return nil, true
	}
	seg := a.lookup(m)
	if seg == nil {
		return nil, false
	}
	off := m.Addr - seg.base
	return seg.mem[off : off+uint64(m.Bytes)], true
}

// leaks describes what Device.Alloc gave and nobody freed.
func (a *addressSpace) leaks() []string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var all []string
	for _, seg := range a.segments {
		if seg.pool == nil {
			all = append(all, fmt.Sprintf("memory %d bytes", len(seg.mem)))
		}
	}
	return all
}

func (a *addressSpace) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.segments, a.used = nil, 0
}

// room describes how full device memory is, for error messages.
func (a *addressSpace) room() string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return fmt.Sprintf("%d of %d bytes of device memory are taken", a.used, a.limit)
}

// roundUp rounds n up to a multiple of unit, a power of two.
func roundUp(n, unit int) int { return (n + unit - 1) &^ (unit - 1) }

// fill sets every byte of mem, by copies of twice the length each.
func fill(mem []byte, value byte) {
	if len(mem) == 0 {
		return
	}
	mem[0] = value
	for n := 1; n < len(mem); n *= 2 {
		copy(mem[n:], mem[:n])
	}
}
