package streams

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/device"
)

// align is the alignment of the buffers in a slab, in bytes. It is the page size, so that no two buffers share a page.
const align = 4096

// layout divides a slab into Buffers pairs of an input buffer and a result buffer.
type layout struct {
	Buffers  int // number of pairs; at least 1
	InBytes  int // size of each input buffer; at least 1
	OutBytes int // size of each result buffer; at least 1
}

// total returns the size of the slab in bytes.
func (l layout) total() int64 {
	return int64(l.Buffers) * int64(roundUp(l.InBytes)+roundUp(l.OutBytes))
}

func roundUp(n int) int { return (n + align - 1) &^ (align - 1) }

// slab is one block of pinned host memory, divided into buffers. Pinning takes most of a second per GiB, so memory is
// pinned only at the start. The methods are safe for concurrent use.
type slab struct {
	dev    device.Device
	layout layout

	mu    sync.Mutex
	whole device.HostBuffer // the whole block; zero after Close
}

// newSlab allocates the memory for l from dev. It fails with device.ErrOutOfMemory if the host can't pin l.total bytes.
// If dev allocates the memory without pinning it, newSlab succeeds and pageable returns the size.
func newSlab(dev device.Device, l layout) (*slab, error) {
	total := int(l.total())
	whole, err := dev.AllocHost(total)
	if err != nil {
		return nil, fmt.Errorf("pin %d MiB for %d double buffers (lower MILLRACE_LANES, MILLRACE_BATCH_BYTES or "+
			"MILLRACE_BATCH_PAYLOADS, or give the process more memory): %w", total>>20, l.Buffers, err)
	}
	return &slab{dev: dev, layout: l, whole: whole}, nil
}

// in returns input buffer i, counted from 0, with layout.InBytes bytes. The slab keeps ownership. in panics if the
// layout has no such buffer or if the slab is closed.
func (s *slab) in(i int) device.HostBuffer { return s.cut(i, 0, s.layout.InBytes) }

// out returns result buffer i, with layout.OutBytes bytes. It panics in the same cases as in.
func (s *slab) out(i int) device.HostBuffer {
	return s.cut(i, s.layout.Buffers*roundUp(s.layout.InBytes), s.layout.OutBytes)
}

// cut returns buffer i of the series that starts at offset off, with the given size per buffer.
func (s *slab) cut(i, off, bytes int) device.HostBuffer {
	if i < 0 || i >= s.layout.Buffers {
		panic(fmt.Sprintf("streams: buffer %d of a slab of %d", i, s.layout.Buffers))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole.Slice(off+i*roundUp(bytes), bytes)
}

// pinned returns the number of page-locked bytes that the slab holds, or 0 after Close.
func (s *slab) pinned() int64 { return s.bytesOf(device.Pinned) }

// pageable returns the number of bytes that the slab holds but the device could not pin. Copies from such memory are
// slow.
func (s *slab) pageable() int64 { return s.bytesOf(device.Pageable) }

func (s *slab) bytesOf(k device.HostKind) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole.Kind() != k {
		return 0
	}
	return int64(s.whole.Len())
}

// close frees the memory. No buffer of the slab may be in use. If close fails, the slab keeps the memory. A second
// close returns nil.
func (s *slab) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole.Len() == 0 {
		return nil
	}
	if err := s.dev.FreeHost(s.whole); err != nil {
		return err
	}
	s.whole = device.HostBuffer{}
	return nil
}

// ScratchOptions configures NewScratch.
type ScratchOptions struct {
	Limit int64 // maximum number of bytes held, at least 1; the device may round it up to its granularity
	Piece int   // size of the largest allocation, in bytes; used only on a device without pools
}

// NewScratch creates a stream-ordered pool of scratch memory, separate from dev's default pool. The pool keeps unused
// memory until Trim is called, because returning it at every synchronization would cost more than the kernels of a
// small batch.
//
// If the device has no pools (device.ErrUnavailable), NewScratch falls back to preallocated pieces, and ScratchPool.Instead
// returns the reason. NewScratch fails with device.ErrInvalid if the limit is below 1.
func NewScratch(dev device.Device, c ScratchOptions) (*ScratchPool, error) {
	if c.Limit < 1 {
		// To a device, a limit of 0 means no limit.
		return nil, device.Errorf("new scratch pool", dev.Info().ID, device.ErrInvalid,
			"a limit of %d bytes: give at least 1 (MILLRACE_SCRATCH_LIMIT)", c.Limit)
	}
	pool, err := dev.NewPool(device.PoolOptions{Limit: c.Limit, ReleaseThreshold: c.Limit})
	if errors.Is(err, device.ErrUnavailable) {
		scratch := countPool(newPreallocated(dev, c.Piece, c.Limit), c.Limit)
		scratch.instead = err
		return scratch, nil
	}
	if err != nil {
		return nil, fmt.Errorf("scratch pool of %d bytes: %w", c.Limit, err)
	}
	return countPool(pool, c.Limit), nil
}

// ScratchPool is a pool that limits the bytes held by its callers and counts their calls. The counters may be read at any
// time.
type ScratchPool struct {
	device.Pool
	allocations, refused atomic.Uint64
	spent                atomic.Int64 // nanoseconds
	instead              error        // the device's error, if scratch is preallocated because the device has no pools

	limit int64
	mu    sync.Mutex
	held  int64 // bytes whose Free has not been enqueued yet
}

// countPool wraps pool. The wrapper refuses an allocation after which callers would hold more than limit bytes, without
// calling the device. PoolOptions.Limit instead bounds the memory that the pool takes from the device. A pool needs
// both limits.
func countPool(pool device.Pool, limit int64) *ScratchPool {
	return &ScratchPool{Pool: pool, limit: limit}
}

// Instead returns the device's error if the device has no memory pools and scratch is preallocated. Otherwise it
// returns nil.
func (c *ScratchPool) Instead() error { return c.instead }

// Alloc implements device.Pool and counts the call. It fails with device.ErrOutOfMemory if the allocation would exceed
// the limit.
func (c *ScratchPool) Alloc(s device.Stream, bytes int) (device.Memory, error) {
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

func (c *ScratchPool) alloc(s device.Stream, bytes int) (device.Memory, error) {
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
func (c *ScratchPool) hold(bytes int64) (held int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held = c.held
	if bytes > c.limit-held {
		return held, false
	}
	c.held += bytes
	return held, true
}

func (c *ScratchPool) release(bytes int64) {
	c.mu.Lock()
	c.held -= bytes
	c.mu.Unlock()
}

// Free implements device.Pool.
func (c *ScratchPool) Free(s device.Stream, m device.Memory) error {
	defer c.spend(time.Now())
	if err := c.Pool.Free(s, m); err != nil {
		return err
	}
	c.release(int64(m.Bytes))
	return nil
}

func (c *ScratchPool) spend(since time.Time) { c.spent.Add(int64(time.Since(since))) }

// HostTime returns the total time that callers spent in Alloc and Free.
func (c *ScratchPool) HostTime() time.Duration { return time.Duration(c.spent.Load()) }

// Allocations returns the number of successful Alloc calls.
func (c *ScratchPool) Allocations() uint64 { return c.allocations.Load() }

// Refused returns the number of Alloc calls that failed for lack of memory.
func (c *ScratchPool) Refused() uint64 { return c.refused.Load() }

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
