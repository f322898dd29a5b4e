package alloc

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/device"
)

// Counted is a pool that limits the bytes that callers hold at once, and counts their calls. The counters may be read
// at any time.
type Counted struct {
	device.Pool
	allocations, frees, refused atomic.Uint64
	spent                       atomic.Int64 // nanoseconds
	instead                     error        // why the device has no pools, if scratch is preallocated instead

	limit int64
	mu    sync.Mutex
	held  int64 // allocated bytes, until their Free is enqueued
}

// NewCountedPool wraps pool. It refuses an allocation, without calling the device, if callers would then hold more than limit
// bytes. PoolConfig.Limit, the device's own limit, bounds what the pool takes from the device; a pool needs both.
func NewCountedPool(pool device.Pool, limit int64) *Counted {
	return &Counted{Pool: pool, limit: limit}
}

// Instead returns why scratch is preallocated: the device has no pools. It returns nil if scratch comes from a pool.
func (c *Counted) Instead() error { return c.instead }

// Alloc implements device.Pool and counts the call. It returns device.ErrOutOfMemory if the allocation would exceed the limit.
func (c *Counted) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	defer c.spend(time.Now())
	m, err := c.alloc(s, bytes)
	switch {
	case err == nil:
		c.allocations.Add(1)
	case errors.Is(err, device.ErrOutOfMemory):
		c.refused.Add(1)
	}
	return m, err
}

func (c *Counted) alloc(s device.Stream, bytes int) (device.Memory, error) {
	bytesHeld := int64(max(bytes, 0)) // the device reports an invalid size
	if held, ok := c.hold(bytesHeld); !ok {
		return device.Memory{}, device.Errorf("allocate scratch", "", device.ErrOutOfMemory,
			"%d bytes, with %d of %d held: raise MILLRACE_SCRATCH_LIMIT or lower MILLRACE_BATCH_BYTES", bytes, held, c.limit)
	}
	m, err := c.Pool.Alloc(s, bytes)
	if err != nil {
		c.release(bytesHeld)
	}
	return m, err
}

// hold reserves bytes within the limit, if they fit. The result held is the amount reserved before.
func (c *Counted) hold(bytes int64) (held int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held = c.held
	if bytes > c.limit-held {
		return held, false
	}
	c.held += bytes
	return held, true
}

func (c *Counted) release(bytes int64) {
	c.mu.Lock()
	c.held -= bytes
	c.mu.Unlock()
}

// Free implements device.Pool and counts the call.
func (c *Counted) Free(s device.Stream, m device.Memory) error {
	defer c.spend(time.Now())
	if err := c.Pool.Free(s, m); err != nil {
		return err
	}
	c.release(int64(m.Bytes))
	c.frees.Add(1)
	return nil
}

func (c *Counted) spend(since time.Time) { c.spent.Add(int64(time.Since(since))) }

// HostTime returns the total time that callers spent in Alloc and Free.
func (c *Counted) HostTime() time.Duration { return time.Duration(c.spent.Load()) }

// Allocations returns the number of successful Alloc calls.
func (c *Counted) Allocations() uint64 { return c.allocations.Load() }

// Refused returns the number of Alloc calls that failed for lack of memory.
func (c *Counted) Refused() uint64 { return c.refused.Load() }

// Outstanding returns the number of allocations that have not been freed. While other goroutines allocate and free, it
// may count an allocation that has just been freed. The result is never negative: Outstanding reads frees first, and
// each allocation is counted before its free.
func (c *Counted) Outstanding() uint64 {
	frees := c.frees.Load()
	return c.allocations.Load() - frees
}
