// Package alloc manages memory that is expensive to allocate. A Slab is a block of pinned host memory that is allocated
// once and divided into buffers. NewScratch returns a stream-ordered pool for device scratch.
//
// Package streams uses this package for its batches, and internal/bench compares variants of the pool.
package alloc

import (
	"fmt"
	"sync"

	"millrace/internal/device"
)

// align is the alignment of the buffers in a slab, in bytes. It is the page size, so that no two buffers share a page.
const align = 4096

// Layout divides a slab into Buffers pairs of an input buffer and a result buffer.
type Layout struct {
	Buffers  int // number of pairs; at least 1
	InBytes  int // size of each input buffer; at least 1
	OutBytes int // size of each result buffer; at least 1
}

// Total returns the size of the slab in bytes.
func (l Layout) Total() int64 {
	return int64(l.Buffers) * int64(roundUp(l.InBytes)+roundUp(l.OutBytes))
}

func roundUp(n int) int { return (n + align - 1) &^ (align - 1) }

// Slab is one block of pinned host memory, divided into buffers. Pinning takes most of a second per GiB, so memory is
// pinned only at the start. The methods are safe for concurrent use.
type Slab struct {
	dev    device.Device
	layout Layout

	mu    sync.Mutex
	whole device.HostBuffer // the whole block; zero after Close
}

// NewSlab allocates the memory for l from dev. It fails with device.ErrOutOfMemory if the host can't pin l.Total bytes.
// If dev allocates the memory without pinning it, NewSlab succeeds and Pageable returns the size.
func NewSlab(dev device.Device, l Layout) (*Slab, error) {
	total := int(l.Total())
	whole, err := dev.AllocHost(total)
	if err != nil {
		return nil, fmt.Errorf("pin %d MiB for %d double buffers (lower MILLRACE_LANES, MILLRACE_BATCH_BYTES or "+
			"MILLRACE_BATCH_PAYLOADS, or give the process more memory): %w", total>>20, l.Buffers, err)
	}
	return &Slab{dev: dev, layout: l, whole: whole}, nil
}

// In returns input buffer i, counted from 0, with Layout.InBytes bytes. The slab keeps ownership. In panics if the
// layout has no such buffer or if the slab is closed.
func (s *Slab) In(i int) device.HostBuffer { return s.cut(i, 0, s.layout.InBytes) }

// Out returns result buffer i, with Layout.OutBytes bytes. The rules of In apply.
func (s *Slab) Out(i int) device.HostBuffer {
	return s.cut(i, s.layout.Buffers*roundUp(s.layout.InBytes), s.layout.OutBytes)
}

// cut returns buffer i of the series that starts at offset off, with the given size per buffer.
func (s *Slab) cut(i, off, bytes int) device.HostBuffer {
	if i < 0 || i >= s.layout.Buffers {
		panic(fmt.Sprintf("alloc: buffer %d of a slab of %d", i, s.layout.Buffers))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole.Slice(off+i*roundUp(bytes), bytes)
}

// Pinned returns the number of page-locked bytes that the slab holds, or 0 after Close.
func (s *Slab) Pinned() int64 { return s.bytesOf(device.Pinned) }

// Pageable returns the number of bytes that the slab holds but the device could not pin. Copies from such memory are
// slow.
func (s *Slab) Pageable() int64 { return s.bytesOf(device.Pageable) }

func (s *Slab) bytesOf(k device.HostKind) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole.Kind() != k {
		return 0
	}
	return int64(s.whole.Len())
}

// Close frees the memory. No buffer of the slab may be in use. If Close fails, the slab keeps the memory. A second
// Close returns nil.
func (s *Slab) Close() error {
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
