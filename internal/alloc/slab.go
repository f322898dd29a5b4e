// Package alloc holds the memory that is expensive to come by: pinned host memory, taken once and cut into
// double buffers, and device scratch, taken from a pool of its own in stream order.
package alloc

import (
	"errors"
	"fmt"

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

// total is the slab's size in bytes.
func (l Layout) total() int { return l.Buffers * (roundUp(l.InBytes) + roundUp(l.OutBytes)) }

func roundUp(n int) int { return (n + align - 1) &^ (align - 1) }

// Slab is one allocation of pinned host memory, cut once. Pinning costs most of a second a GiB, so nothing
// is pinned after the start.
type Slab struct {
	dev    device.Device
	layout Layout
	whole  device.HostBuffer
}

// NewSlab takes the memory that l asks for from dev. It fails with device.ErrOutOfMemory when the host will
// not pin that much, and with device.ErrInvalid for a layout without room; it never hands out less than was
// asked. Memory that dev could not pin is a slab all the same, and counted by Pageable.
func NewSlab(dev device.Device, l Layout) (*Slab, error) {
	if l.Buffers < 1 || l.InBytes < 1 || l.OutBytes < 1 {
		return nil, device.Errorf("pin memory", dev.Info().ID, device.ErrInvalid, "layout %+v has no room", l)
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

// In is the i-th input buffer, Layout.InBytes long. It belongs to the slab.
func (s *Slab) In(i int) device.HostBuffer {
	return s.whole.Slice(i*roundUp(s.layout.InBytes), s.layout.InBytes)
}

// Out is the i-th result buffer, Layout.OutBytes long. It belongs to the slab.
func (s *Slab) Out(i int) device.HostBuffer {
	ins := s.layout.Buffers * roundUp(s.layout.InBytes)
	return s.whole.Slice(ins+i*roundUp(s.layout.OutBytes), s.layout.OutBytes)
}

// Pinned is the bytes of page-locked memory the slab holds.
func (s *Slab) Pinned() int64 { return s.bytesOf(device.Pinned) }

// Pageable is the bytes it holds that the device could not pin: copies from there are slow.
func (s *Slab) Pageable() int64 { return s.bytesOf(device.Pageable) }

func (s *Slab) bytesOf(k device.HostKind) int64 {
	if s.whole.Kind() != k {
		return 0
	}
	return int64(s.whole.Len())
}

// Close gives the memory back. No buffer of the slab may be in use. A second Close returns nil.
func (s *Slab) Close() error {
	if s.whole.Len() == 0 {
		return nil
	}
	if err := s.dev.FreeHost(s.whole); err != nil {
		return err
	}
	s.whole = device.HostBuffer{}
	return nil
}
