// Package alloc holds the memory that is expensive to come by: pinned host memory, taken once and cut into
// double buffers, and device scratch, taken from a pool of its own in stream order.
package alloc

import (
	"errors"
	"fmt"
	"sync"

	"millrace/internal/device"
)

// align is where buffers within a slab start: a page, so that no two buffers share one.
const align = 4096

// Layout says how a slab is cut: Buffers pairs, each of an input and a result buffer.
type Layout struct {
	Buffers  int // pairs; at least 1
	InBytes  int // of each input buffer; at least 1
	OutBytes int // of each result buffer; at least 1
}

// maxSlab bounds a slab, in bytes: more than any host has, and far from where sizes overflow.
const maxSlab = 1 << 46

// check says what is wrong with a layout.
func (l Layout) check() error {
	switch {
	case l.Buffers < 1 || l.InBytes < 1 || l.OutBytes < 1:
		return fmt.Errorf("layout %+v: every number must be at least 1", l)
	case l.InBytes > maxSlab || l.OutBytes > maxSlab || l.Buffers > maxSlab/(roundUp(l.InBytes)+roundUp(l.OutBytes)):
		return fmt.Errorf("layout %+v takes more than %d bytes", l, maxSlab)
	}
	return nil
}

// Total is the slab's size in bytes.
func (l Layout) Total() int64 {
	return int64(l.Buffers) * int64(roundUp(l.InBytes)+roundUp(l.OutBytes))
}

// total is the same as what an allocation takes.
func (l Layout) total() int { return l.Buffers * (roundUp(l.InBytes) + roundUp(l.OutBytes)) }

func roundUp(n int) int { return (n + align - 1) &^ (align - 1) }

// Slab is one allocation of pinned host memory, cut once. Pinning costs most of a second a GiB, so nothing
// is pinned after the start. Methods are safe for concurrent use.
type Slab struct {
	dev    device.Device
	layout Layout

	mu    sync.Mutex
	whole device.HostBuffer // no memory once closed
}

// NewSlab takes the memory that l asks for from dev. It fails with device.ErrOutOfMemory when the host will
// not pin that much, and with device.ErrInvalid for a layout that makes no sense; it never hands out less than was
// asked. Memory that dev could not pin is a slab all the same, and counted by Pageable.
func NewSlab(dev device.Device, l Layout) (*Slab, error) {
	if err := l.check(); err != nil {
		return nil, device.Errorf("pin memory", dev.Info().ID, device.ErrInvalid, "%v", err)
	}
	whole, err := dev.AllocHost(l.total())
	if err != nil {
		return nil, fmt.Errorf("pin %d MiB for %d double buffers (lower MILLRACE_LANES, MILLRACE_BATCH_BYTES or "+
			"MILLRACE_BATCH_PAYLOADS, or give the process more memory): %w", l.total()>>20, l.Buffers, err)
	}
	if whole.Len() < l.total() {
		err := device.Errorf("pin memory", dev.Info().ID, device.ErrOutOfMemory,
			"asked for %d bytes and got %d", l.total(), whole.Len())
		return nil, errors.Join(err, dev.FreeHost(whole))
	}
	return &Slab{dev: dev, layout: l, whole: whole}, nil
}

// In is the i-th input buffer, from 0, Layout.InBytes long. It belongs to the slab. It panics for a buffer that
// the layout does not have, and once the slab is closed.
func (s *Slab) In(i int) device.HostBuffer { return s.cut(i, 0, s.layout.InBytes) }

// Out is the i-th result buffer, Layout.OutBytes long, else as In.
func (s *Slab) Out(i int) device.HostBuffer {
	return s.cut(i, s.layout.Buffers*roundUp(s.layout.InBytes), s.layout.OutBytes)
}

// cut is buffer i of those of bytes each that lie from off.
func (s *Slab) cut(i, off, bytes int) device.HostBuffer {
	if i < 0 || i >= s.layout.Buffers {
		panic(fmt.Sprintf("alloc: buffer %d of a slab of %d", i, s.layout.Buffers))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole.Slice(off+i*roundUp(bytes), bytes)
}

// Pinned is the bytes of page-locked memory the slab holds; 0 once it is closed.
func (s *Slab) Pinned() int64 { return s.bytesOf(device.Pinned) }

// Pageable is the bytes it holds that the device could not pin: copies from there are slow.
func (s *Slab) Pageable() int64 { return s.bytesOf(device.Pageable) }

func (s *Slab) bytesOf(k device.HostKind) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole.Kind() != k {
		return 0
	}
	return int64(s.whole.Len())
}

// Close gives the memory back. No buffer of the slab may be in use. It keeps the memory if it fails. A second
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
