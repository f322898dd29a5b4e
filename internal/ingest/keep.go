package ingest

import (
	"sync/atomic"
	"unsafe"
)

// keep bounds the memory that groups and desks keep from one batch to the next, all of them together. What would exceed the bound is
// let go: the next batch of that size allocates it again. Memory in use is counted by the budget.
type keep struct {
	most int64
	kept atomic.Int64
}

// enough reports whether something that kept before bytes may keep now bytes, and counts those if so.
func (k *keep) enough(before, now int64) bool {
	if k.kept.Add(now-before) <= k.most || now <= before {
		return true
	}
	k.kept.Add(before - now)
	return false
}

// group bounds what a cleared group keeps.
func (k *keep) group(g *group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	size := sizeOf(g.items) + sizeOf(g.settled) + sizeOf(g.bodies) + sizeOf(g.ends)
	if !k.enough(g.kept, size) {
		k.enough(g.kept, 0)
		g.items, g.settled, g.bodies, g.ends, size = nil, nil, nil, nil, 0
	}
	g.kept = size
}

func sizeOf[T any](s []T) int64 {
	var one T
	return int64(cap(s)) * int64(unsafe.Sizeof(one))
}

// makeRoom makes room for results of so many bytes at once. Growing by and by would take twice as much, and leave garbage.
func (g *group) makeRoom(bytes int) {
	if cap(g.bodies) < bytes {
		g.bodies = make([]byte, 0, bytes)
	}
}
