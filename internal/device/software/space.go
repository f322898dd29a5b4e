// Package software is the common part of the devices that run in this process: the device's state, its operators, its
// address space, its pools, and the host buffers that copies and kernels access. Packages host and sim build on it.
//
// It maps addresses to bytes, chooses blocks for allocations, and checks whether a launch is possible. The device
// decides when work runs and what happens after a wrong address. Start reading with Base, then Space and Pool.
package software

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"millrace/internal/device"
)

const (
	// Alignment is the alignment that device.Pool guarantees, and the unit in which all memory is counted, in bytes.
	Alignment = 256

	// Poison is the value that fills memory with undefined contents, with the invariants tag.
	Poison = 0xDB

	// gap is the unit of addresses, and the size of the unmapped space behind each segment and host buffer, in bytes.
	// It turns an overrun into a fault instead of a write to the next allocation.
	gap = 4096
)

// Space is all memory of a device. It consists of segments. Addresses are never reused, so use after Free is always
// detected. Methods are safe for concurrent use.
type Space struct {
	id    string // the device's ID, for errors
	limit int64  // bytes
	unit  int    // allocations are counted in multiples of it
	fresh byte   // value of memory that was never used

	usable func(call string) error // returns nil if the device accepts calls

	mu       sync.RWMutex
	segments []*segment // by base, ascending
	next     uint64     // base of the next segment
	used     int64

	poolsMu sync.Mutex
	pools   []*Pool // includes closed pools until their memory is released
}

// segment is memory that was taken in one piece: an allocation of Space.Alloc, or memory that a pool divides.
type segment struct {
	base uint64
	mem  []byte
	pool *Pool // nil for Space.Alloc
}

// NewSpace creates the memory of the device with that ID. The limit is in bytes. It allocates no memory yet. Memory
// that was never used is filled with fresh; only 0 costs nothing.
func NewSpace(id string, limit int64, fresh byte) *Space {
	return &Space{id: id, limit: limit, unit: Alignment, fresh: fresh, next: gap, usable: func(string) error { return nil }}
}

// Alloc allocates memory. It fails with device.ErrInvalid if bytes is less than 1, and with device.ErrOutOfMemory.
func (s *Space) Alloc(bytes int) (device.Memory, error) {
	seg, err := s.alloc("alloc", bytes)
	if err != nil {
		return device.Memory{}, err
	}
	return device.Memory{Addr: seg.base, Bytes: bytes}, nil
}

func (s *Space) alloc(call string, bytes int) (*segment, error) {
	if err := s.usable(call); err != nil {
		return nil, err
	}
	if bytes <= 0 {
		return nil, s.errorf(call, device.ErrInvalid, "%d bytes: ask for at least 1", bytes)
	}
	seg := s.take(bytes, nil)
	if seg == nil {
		return nil, s.errorf(call, device.ErrOutOfMemory, "%d bytes: %s", bytes, s.room())
	}
	return seg, nil
}

// Free frees a whole allocation of Alloc. It fails with device.ErrInvalid for anything else.
func (s *Space) Free(m device.Memory) error {
	if err := s.usable("free"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.index(m.Addr)
	if i < 0 || s.segments[i].pool != nil || s.segments[i].base != m.Addr || len(s.segments[i].mem) != m.Bytes {
		return s.errorf("free", device.ErrInvalid, "%v is not a whole live allocation of Alloc", Span(m))
	}
	s.remove(i)
	return nil
}

// take maps a new segment, or returns nil if that would exceed the limit.
func (s *Space) take(bytes int, p *Pool) *segment {
	if int64(bytes) > s.limit {
		return nil // also keeps the sums below from overflowing
	}
	if !s.reserve(int64(roundUp(bytes, s.unit))) {
		return nil
	}
	// Large memory takes long to clear, so it is cleared without holding the lock.
	seg := &segment{mem: aligned(bytes), pool: p}
	if s.fresh != 0 {
		Fill(seg.mem, s.fresh)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.base = s.next
	s.next += uint64(roundUp(bytes, gap) + gap)
	s.segments = append(s.segments, seg)
	return seg
}

// aligned returns new memory at a multiple of Alignment. Kernels need that alignment for results that they write in
// place.
func aligned(bytes int) []byte {
	mem := make([]byte, bytes+Alignment-1)
	skip := int(-Address(mem) % Alignment)
	return mem[skip : skip+bytes : skip+bytes]
}

// reserve counts bytes against the limit. It returns false if they would exceed it.
func (s *Space) reserve(bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes > s.limit-s.used {
		return false
	}
	s.used += bytes
	return true
}

// give unmaps a segment. A second call for the same segment does nothing.
func (s *Space) give(seg *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.index(seg.base); i >= 0 && s.segments[i] == seg {
		s.remove(i)
	}
}

// remove unmaps segment i. The caller holds mu.
func (s *Space) remove(i int) {
	s.used -= int64(roundUp(len(s.segments[i].mem), s.unit))
	s.segments = slices.Delete(s.segments, i, i+1)
}

// index returns the last segment that starts at or below addr, or -1 if there is none. The caller holds mu.
func (s *Space) index(addr uint64) int {
	i, exact := slices.BinarySearchFunc(s.segments, addr, func(seg *segment, addr uint64) int {
		return cmp.Compare(seg.base, addr)
	})
	if exact {
		return i
	}
	return i - 1
}

// lookup returns the segment that contains all of m, or nil if there is none.
func (s *Space) lookup(m device.Memory) *segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := s.index(m.Addr)
	if i < 0 || !s.segments[i].holds(m) {
		return nil
	}
	return s.segments[i]
}

// holds reports whether all of m is in the segment. m must not start below the segment.
func (seg *segment) holds(m device.Memory) bool {
	off, size := m.Addr-seg.base, uint64(len(seg.mem))
	return m.Bytes >= 0 && off <= size && uint64(m.Bytes) <= size-off
}

// bytes returns the memory at m, which must be in the segment. Its capacity is limited, so append doesn't overwrite
// later memory.
func (seg *segment) bytes(m device.Memory) []byte {
	off := m.Addr - seg.base
	return seg.mem[off : off+uint64(m.Bytes) : off+uint64(m.Bytes)]
}

// Bytes returns the memory at m, or false if it is not all mapped. All memory that a pool has taken is mapped,
// allocated or not. An empty m is always mapped.
func (s *Space) Bytes(m device.Memory) ([]byte, bool) {
	if m.Bytes == 0 {
		return nil, true
	}
	seg := s.lookup(m)
	if seg == nil {
		return nil, false
	}
	return seg.bytes(m), true
}

// Find returns the memory at m and the start address of its allocation. It returns false if m is not within one live
// allocation.
func (s *Space) Find(m device.Memory) (mem []byte, base uint64, ok bool) {
	seg := s.lookup(m)
	if seg == nil {
		return nil, 0, false
	}
	base = seg.base
	if seg.pool != nil {
		if base, ok = seg.pool.find(m); !ok {
			return nil, 0, false
		}
	}
	return seg.bytes(m), base, true
}

// clear unmaps everything. It returns descriptions of the allocations of Alloc that nobody freed.
func (s *Space) clear(what string) (leaks []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range s.segments {
		if seg.pool == nil {
			leaks = append(leaks, fmt.Sprintf("%s %d bytes", what, len(seg.mem)))
		}
	}
	s.segments, s.used = nil, 0
	return leaks
}

// ReleasePools makes every pool release memory that it needn't keep. A device calls it when it synchronizes.
func (s *Space) ReleasePools() {
	s.poolsMu.Lock()
	defer s.poolsMu.Unlock()
	s.pools = slices.DeleteFunc(s.pools, (*Pool).Release)
}

// left returns the number of bytes that may still be taken.
func (s *Space) left() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.limit - s.used
}

// room returns a description of how full the space is, for error messages.
func (s *Space) room() string {
	return fmt.Sprintf("%d of %d bytes are taken", s.limit-s.left(), s.limit)
}

func (s *Space) errorf(call string, kind error, format string, args ...any) error {
	return device.Errorf(call, s.id, kind, format, args...)
}

// Span formats device memory as the address range that it covers.
type Span device.Memory

func (m Span) String() string { return fmt.Sprintf("device memory %#x+%d", m.Addr, m.Bytes) }

// Address returns the address of mem in this process.
func Address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// Fill sets every byte of mem to value. It copies twice as many bytes each time, because a loop over bytes is slow, and
// very slow under the race detector.
func Fill(mem []byte, value byte) {
	if len(mem) == 0 {
		return
	}
	mem[0] = value
	for n := 1; n < len(mem); n *= 2 {
		copy(mem[n:], mem[:n])
	}
}

// roundUp rounds n up to a multiple of unit, a power of two.
func roundUp(n, unit int) int { return (n + unit - 1) &^ (unit - 1) }
