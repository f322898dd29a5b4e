package inflight

import (
	"sync/atomic"
	"unsafe"
)

// retention bounds the total memory that unused batches and settle buffers keep. Memory beyond the bound is dropped.
// The budget counts memory that is in use.
type retention struct {
	max  int64
	kept atomic.Int64
}

// resize changes the recorded size of one item from before to now bytes. If the total would exceed the bound, it
// changes nothing and returns false.
func (k *retention) resize(before, now int64) bool {
	if k.kept.Add(now-before) <= k.max || now <= before {
		return true
	}
	k.kept.Add(before - now)
	return false
}

// batch bounds the memory that a cleared batch keeps.
func (k *retention) batch(g *Batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	size := SizeOf(g.Items) + SizeOf(g.settled) + SizeOf(g.Bodies.Data) + SizeOf(g.Bodies.ends)
	if !k.resize(g.kept, size) {
		k.resize(g.kept, 0)
		g.Items, g.settled, g.Bodies, size = nil, nil, Bodies{}, 0
	}
	g.kept = size
}

// SizeOf returns the number of bytes that a slice takes, including its spare capacity.
func SizeOf[T any](s []T) int64 {
	var one T
	return int64(cap(s)) * int64(unsafe.Sizeof(one))
}
