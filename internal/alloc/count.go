package alloc

import (
	"errors"
	"sync/atomic"
	"time"

	"millrace/internal/device"
)

// Counted is a pool that counts its calls. The counters may be read at any time.
type Counted struct {
	device.Pool
	allocations, frees, refused atomic.Uint64
	spent                       atomic.Int64 // nanoseconds
	instead                     error        // why the device has no pools, if scratch is preallocated instead
}

// Instead returns why scratch is preallocated: the device has no pools. It returns nil if scratch comes from a pool.
func (c *Counted) Instead() error { return c.instead }

// Count wraps pool.
func Count(pool device.Pool) *Counted { return &Counted{Pool: pool} }

// Alloc implements device.Pool and counts the call.
func (c *Counted) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	defer c.spend(time.Now())
	m, err := c.Pool.Alloc(s, bytes)
	switch {
	case err == nil:
		c.allocations.Add(1)
	case errors.Is(err, device.ErrOutOfMemory):
		c.refused.Add(1)
	}
	return m, err
}

// Free implements device.Pool and counts the call.
func (c *Counted) Free(s device.Stream, m device.Memory) error {
	defer c.spend(time.Now())
	err := c.Pool.Free(s, m)
	if err == nil {
		c.frees.Add(1)
	}
	return err
}

func (c *Counted) spend(since time.Time) { c.spent.Add(int64(time.Since(since))) }

// HostTime returns the total time that callers spent in Alloc and Free.
func (c *Counted) HostTime() time.Duration { return time.Duration(c.spent.Load()) }

// Allocations returns the number of successful Alloc calls.
func (c *Counted) Allocations() uint64 { return c.allocations.Load() }

// Refused returns the number of Alloc calls that failed for lack of memory.
func (c *Counted) Refused() uint64 { return c.refused.Load() }

// Outstanding returns the number of allocations that have not been freed. While other goroutines allocate and free, it
// may count an allocation that has just been freed. It never underflows: it reads frees first, and each allocation is
// counted before its free.
func (c *Counted) Outstanding() uint64 {
	frees := c.frees.Load()
	return c.allocations.Load() - frees
}
