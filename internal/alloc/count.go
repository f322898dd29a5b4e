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
	instead                     error        // why there is no pool of the device's own
}

// Instead is why the device gave no pool, so that scratch is preallocated; nil where it gave one.
func (c *Counted) Instead() error { return c.instead }

// Count wraps pool.
func Count(pool device.Pool) *Counted { return &Counted{Pool: pool} }

// Alloc is as device.Pool.Alloc.
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

// Free is as device.Pool.Free.
func (c *Counted) Free(s device.Stream, m device.Memory) error {
	defer c.spend(time.Now())
	err := c.Pool.Free(s, m)
	if err == nil {
		c.frees.Add(1)
	}
	return err
}

func (c *Counted) spend(since time.Time) { c.spent.Add(int64(time.Since(since))) }

// HostTime is how long the host was in Alloc and Free, all callers together.
func (c *Counted) HostTime() time.Duration { return time.Duration(c.spent.Load()) }

// Allocations is how many Alloc calls gave memory.
func (c *Counted) Allocations() uint64 { return c.allocations.Load() }

// Refused is how many failed for want of memory.
func (c *Counted) Refused() uint64 { return c.refused.Load() }

// Outstanding is how many allocations have not been freed. While others allocate and free it may count one that
// is freed already, but never fewer than none: frees are read first, and an allocation is counted before its free.
func (c *Counted) Outstanding() uint64 {
	frees := c.frees.Load()
	return c.allocations.Load() - frees
}
