package inflight

import (
	"sync/atomic"
	"unsafe"
)

// retention bounds the memory that groups and desks keep from one batch to the next, all of them together. What would exceed the bound is
// let go: the next batch of that size allocates it again. Memory in use is counted by the budget.
type retention struct {
	most int64
	kept atomic.Int64
}

// resize reports whether something that kept before bytes may keep now bytes, and counts those if so.
func (k *retention) resize(before, now int64) bool {
	if k.kept.Add(now-before) <= k.most || now <= before {
		return true
	}
	k.kept.Add(before - now)
	return false
}

// batch bounds what a cleared group keeps.
func (k *retention) batch(g *Batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	size := SizeOf(g.Items) + SizeOf(g.settled) + SizeOf(g.Bodies.Data) + SizeOf(g.Bodies.ends)
	if !k.resize(g.kept, size) {
		k.resize(g.kept, 0)
		g.Items, g.settled, g.Bodies, size = nil, nil, bodies{}, 0
	}
	g.kept = size
}

func SizeOf[T any](s []T) int64 {
	var one T
	return int64(cap(s)) * int64(unsafe.Sizeof(one))
}
