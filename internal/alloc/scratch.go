package alloc

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/device"
)

// Scratch configures NewScratch.
type Scratch struct {
	Limit int64 // maximum number of bytes held, at least 1; the device may round it up to its granularity
	Piece int   // size of the largest allocation, in bytes; used only on a device without pools
}

// NewScratch creates a stream-ordered pool of scratch memory, separate from dev's default pool. The pool keeps unused
// memory until Trim is called, because returning it at every synchronization would cost more than the kernels of a
// small batch.
//
// If the device has no pools (device.ErrUnavailable), NewScratch falls back to preallocated pieces, and Counted.Instead
// returns the reason. NewScratch fails with device.ErrInvalid if the limit is below 1.
func NewScratch(dev device.Device, c Scratch) (*Counted, error) {
	if c.Limit < 1 {
		// To a device, a limit of 0 means no limit.
		return nil, device.Errorf("new scratch pool", dev.Info().ID, device.ErrInvalid,
			"a limit of %d bytes: give at least 1 (MILLRACE_SCRATCH_LIMIT)", c.Limit)
	}
	pool, err := dev.NewPool(device.PoolOptions{Limit: c.Limit, ReleaseThreshold: c.Limit})
	if errors.Is(err, device.ErrUnavailable) {
		scratch := NewCountedPool(newPreallocated(dev, c.Piece, c.Limit), c.Limit)
		scratch.instead = err
		return scratch, nil
	}
	if err != nil {
		return nil, fmt.Errorf("scratch pool of %d bytes: %w", c.Limit, err)
	}
	return NewCountedPool(pool, c.Limit), nil
}

// Counted is a pool that limits the bytes held by its callers and counts their calls. The counters may be read at any
// time.
type Counted struct {
	device.Pool
	allocations, refused atomic.Uint64
	spent                atomic.Int64 // nanoseconds
	instead              error        // the device's error, if scratch is preallocated because the device has no pools

	limit int64
	mu    sync.Mutex
	held  int64 // bytes whose Free has not been enqueued yet
}

// NewCountedPool wraps pool. The wrapper refuses an allocation after which callers would hold more than limit bytes,
// and then doesn't call the device. PoolOptions.Limit instead bounds the memory that the pool takes from the device. A
// pool needs both limits.
func NewCountedPool(pool device.Pool, limit int64) *Counted {
	return &Counted{Pool: pool, limit: limit}
}

// Instead returns the device's error if the device has no memory pools and scratch is preallocated. Otherwise it
// returns nil.
func (c *Counted) Instead() error { return c.instead }

// Alloc implements device.Pool and counts the call. It fails with device.ErrOutOfMemory if the allocation would exceed
// the limit.
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
	bytesHeld := int64(max(bytes, 0)) // Pool.Alloc reports a negative size
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

// hold reserves bytes if they fit within the limit. held is the number of bytes reserved before the call.
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

// Free implements device.Pool.
func (c *Counted) Free(s device.Stream, m device.Memory) error {
	defer c.spend(time.Now())
	if err := c.Pool.Free(s, m); err != nil {
		return err
	}
	c.release(int64(m.Bytes))
	return nil
}

func (c *Counted) spend(since time.Time) { c.spent.Add(int64(time.Since(since))) }

// HostTime returns the total time that callers spent in Alloc and Free.
func (c *Counted) HostTime() time.Duration { return time.Duration(c.spent.Load()) }

// Allocations returns the number of successful Alloc calls.
func (c *Counted) Allocations() uint64 { return c.allocations.Load() }

// Refused returns the number of Alloc calls that failed for lack of memory.
func (c *Counted) Refused() uint64 { return c.refused.Load() }

// preallocated is a pool with one piece for each stream, allocated at the stream's first use. The order of the stream
// keeps two batches from using the piece at once.
type preallocated struct {
	dev   device.Device
	piece int   // size of each piece in bytes
	limit int64 // maximum size of all pieces together, in bytes

	mu     sync.Mutex
	pieces map[device.Stream]device.Memory
	stats  device.PoolStats
}

func newPreallocated(dev device.Device, piece int, limit int64) *preallocated {
	return &preallocated{dev: dev, piece: piece, limit: limit, pieces: map[device.Stream]device.Memory{}}
}

// Alloc returns the start of the stream's piece. It fails with device.ErrOutOfMemory if bytes exceeds the size of a
// piece, or if a new piece would exceed the limit.
func (p *preallocated) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if bytes > p.piece {
		return device.Memory{}, device.Errorf("allocate scratch", p.dev.Info().ID, device.ErrOutOfMemory,
			"%d bytes requested from a piece of %d bytes", bytes, p.piece)
	}
	m, ok := p.pieces[s]
	if !ok {
		if p.stats.Reserved+int64(p.piece) > p.limit {
			return device.Memory{}, device.Errorf("allocate scratch", p.dev.Info().ID, device.ErrOutOfMemory,
				"a piece of %d bytes for another stream, with %d of %d taken: raise MILLRACE_SCRATCH_LIMIT or lower MILLRACE_LANES",
				p.piece, p.stats.Reserved, p.limit)
		}
		var err error
		if m, err = p.dev.Alloc(p.piece); err != nil {
			return device.Memory{}, err
		}
		p.pieces[s] = m
		p.stats.Reserved += int64(p.piece)
		p.stats.ReservedHigh = p.stats.Reserved
	}
	p.stats.Used += int64(bytes)
	p.stats.UsedHigh = max(p.stats.UsedHigh, p.stats.Used)
	return m.Slice(0, bytes), nil
}

// Free keeps the piece for the stream's next allocation.
func (p *preallocated) Free(_ device.Stream, m device.Memory) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Used -= int64(m.Bytes)
	return nil
}

// Trim does nothing, because the pieces stay allocated for the next batch.
func (p *preallocated) Trim(int64) error { return nil }

// Stats implements device.Pool.
func (p *preallocated) Stats() (device.PoolStats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats, nil
}

// Close frees the pieces. No piece may be in use.
func (p *preallocated) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for s, m := range p.pieces {
		errs = append(errs, p.dev.Free(m))
		delete(p.pieces, s)
	}
	return errors.Join(errs...)
}
