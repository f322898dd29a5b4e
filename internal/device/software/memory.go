package software

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"millrace/internal/device"
)

// Alloc implements device.Device. It does not wait for other work.
func (d *Device) Alloc(bytes int) (device.Memory, error) {
	seg, err := d.allocate("alloc", &d.memory, bytes)
	if err != nil {
		return device.Memory{}, err
	}
	return device.Memory{Addr: seg.base, Bytes: bytes}, nil
}

// AllocHost implements device.Device. The memory is ordinary process memory.
func (d *Device) AllocHost(bytes int) (device.HostBuffer, error) {
	const call = "alloc host"
	seg, err := d.allocate(call, &d.buffers, bytes)
	if err != nil {
		return device.HostBuffer{}, err
	}
	return device.NewHostBuffer(seg.mem, d.o.HostKind, guard{d}), nil
}

// allocate makes an allocation in a space.
func (d *Device) allocate(call string, s *space, bytes int) (*segment, error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.checkUsable(call); err != nil {
		return nil, err
	}
	if bytes <= 0 {
		return nil, d.errorf(call, device.ErrInvalid, "%d bytes: ask for at least 1", bytes)
	}
	if err := d.inject(call); err != nil {
		return nil, err
	}
	if !s.reserve(bytes) {
		return nil, d.errorf(call, device.ErrOutOfMemory, "%d bytes: %s", bytes, s.room())
	}
	// make runs without the lock, because clearing large memory takes a long time.
	d.Mu.Unlock()
	mem := s.make(bytes)
	d.Mu.Lock()
	return s.insert(mem, nil), nil
}

// Free implements device.Device. If queued work still uses the memory, the device is lost when the work runs. With the
// invariants tag, Free panics instead.
func (d *Device) Free(m device.Memory) error {
	const call = "free"
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.checkUsable(call); err != nil {
		return err
	}
	seg := d.memory.find(m)
	if seg == nil || seg.pool != nil || seg.base != m.Addr || len(seg.mem) != m.Bytes {
		return d.misuse(call, "%v is not a whole live allocation of Alloc", span(m))
	}
	d.mustBeUnused(seg.mem, span(m).String()+" is freed")
	d.memory.remove(seg)
	return nil
}

// FreeHost implements device.Device. If queued work still uses the buffer, the device is lost when the work runs. With
// the invariants tag, FreeHost panics instead.
func (d *Device) FreeHost(b device.HostBuffer) error {
	const call = "free host"
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.checkUsable(call); err != nil {
		return err
	}
	seg := d.buffers.around(b.Raw())
	if seg == nil || len(seg.mem) != b.Len() {
		return d.misuse(call, "a host buffer of %d bytes is not a whole live allocation of AllocHost", b.Len())
	}
	d.mustBeUnused(seg.mem, "a host buffer is freed")
	d.buffers.remove(seg)
	return nil
}

// Map implements device.Mapper. Kernels are Go code in this process, so they can access any buffer.
func (d *Device) Map(b device.HostBuffer) (device.Memory, error) {
	const call = "map"
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.checkUsable(call); err != nil {
		return device.Memory{}, err
	}
	seg := d.buffers.around(b.Raw())
	if seg == nil {
		return device.Memory{}, d.errorf(call, device.ErrInvalid,
			"%d bytes that don't belong to a live host buffer of this device: map only memory from AllocHost", b.Len())
	}
	return device.Memory{Addr: seg.base + address(b.Raw()) - address(seg.mem), Bytes: b.Len()}, nil
}

// use returns o's use of device memory. If m is not within one live allocation, use sets o.fault, so o fails when it
// runs. An empty m uses no memory.
func (o *Op) use(m device.Memory) use {
	if m.Bytes == 0 {
		return use{}
	}
	if seg := o.Stream.dev.memory.find(m); seg != nil {
		if seg.pool == nil || !o.Stream.dev.o.Strict {
			return use{seg.bytes(m), &seg.life}
		}
		if b, _ := seg.pool.blockOver(m); b != nil {
			return use{seg.bytes(m), b.life}
		}
	}
	o.fault = fmt.Sprintf("illegal address: %v is used after it was freed, or was never allocated", span(m))
	return use{}
}

// useMapped is like use, but also accepts the mapped memory of a host buffer.
func (o *Op) useMapped(m device.Memory) use {
	if m.Bytes != 0 && m.Addr&mappedBit != 0 {
		if seg := o.Stream.dev.buffers.find(m); seg != nil {
			return use{seg.bytes(m), &seg.life}
		}
	}
	return o.use(m)
}

// useHost returns o's use of a host buffer. Pageable memory may belong to the caller instead of the device.
func (o *Op) useHost(b device.HostBuffer) use {
	if seg := o.Stream.dev.buffers.around(b.Raw()); seg != nil {
		return use{b.Raw(), &seg.life}
	}
	if b.Kind() == device.Pinned {
		o.fault = fmt.Sprintf("illegal address: a host buffer of %d bytes is used after it was freed", b.Len())
	}
	return use{mem: b.Raw()}
}

const (
	// Alignment is the alignment that device.Pool guarantees, in bytes. Device memory is counted in the same unit.
	Alignment = 256

	// Granule is the unit in which pools take memory from the device, in bytes, as on a GPU. If less memory is left, a
	// pool takes the remaining memory.
	Granule = 2 << 20

	// poison is the byte that fills memory with undefined contents under the invariants tag.
	poison = 0xDB

	// gap is the unit of addresses, and the size of the unmapped space behind each segment, in bytes. An overrun causes
	// a fault instead of a write to the next allocation.
	gap = 4096

	// mappedBit is set in every address of a host buffer (see Device.Map), and in no address of device memory.
	mappedBit = 1 << 63
)

// space maps addresses to memory. A device has one space for its own memory and one for host buffers. A space consists
// of segments. A space never reuses addresses, so use after free is always detected. The device's lock guards it.
type space struct {
	limit int64 // bytes
	unit  int   // unit in which segments are counted, in bytes
	fresh byte  // initial value of memory; only 0 costs nothing

	segments []*segment // ascending by base
	next     uint64     // base of the next segment
	used     int64
}

// segment is one contiguous piece of memory: an allocation, or memory that a pool divides.
type segment struct {
	base uint64
	mem  []byte
	pool *Pool // nil for an allocation
	life life
}

// life is the lifetime of one allocation. Queued work points to the life, so use after free is detected even if another
// allocation has received the addresses.
type life struct {
	over atomic.Bool // set once the memory is freed or, for pool memory, once the freeing stream reached the free
}

// reserve counts bytes against the limit. It returns false if the limit would be exceeded.
func (s *space) reserve(bytes int) bool {
	if int64(bytes) > s.left() || int64(roundUp(bytes, s.unit)) > s.left() { // the first comparison keeps the second from overflowing
		return false
	}
	s.used += int64(roundUp(bytes, s.unit))
	return true
}

// insert maps mem as a new segment of p, or of no pool if p is nil. The caller has reserved the memory.
func (s *space) insert(mem []byte, p *Pool) *segment {
	seg := &segment{base: s.next, mem: mem, pool: p}
	s.next += uint64(roundUp(len(mem), gap) + gap)
	s.segments = append(s.segments, seg)
	return seg
}

// make returns new memory at a multiple of Alignment. In-place results need the alignment. make needs no lock.
func (s *space) make(bytes int) []byte {
	mem := make([]byte, bytes+Alignment-1)
	skip := int(-address(mem) % Alignment)
	mem = mem[skip : skip+bytes : skip+bytes]
	if s.fresh != 0 {
		fill(mem, s.fresh)
	}
	return mem
}

// remove unmaps a segment. It returns false if the segment is not mapped.
func (s *space) remove(seg *segment) bool {
	i := slices.Index(s.segments, seg)
	if i < 0 {
		return false
	}
	seg.life.over.Store(true)
	s.used -= int64(roundUp(len(seg.mem), s.unit))
	s.segments = slices.Delete(s.segments, i, i+1)
	return true
}

// find returns the segment that contains all of m, or nil if there is none.
func (s *space) find(m device.Memory) *segment {
	i, exact := slices.BinarySearchFunc(s.segments, m.Addr, func(seg *segment, addr uint64) int {
		return cmp.Compare(seg.base, addr)
	})
	if !exact {
		i--
	}
	if i < 0 || !s.segments[i].holds(m) {
		return nil
	}
	return s.segments[i]
}

// holds reports whether all of m is in the segment. The start of m must not be below the segment.
func (s *segment) holds(m device.Memory) bool {
	off, size := m.Addr-s.base, uint64(len(s.mem))
	return m.Bytes >= 0 && off <= size && uint64(m.Bytes) <= size-off
}

// bytes returns the memory at m, which must be in the segment. The slice's capacity is limited, so append doesn't
// overwrite later memory.
func (s *segment) bytes(m device.Memory) []byte {
	off := m.Addr - s.base
	return s.mem[off : off+uint64(m.Bytes) : off+uint64(m.Bytes)]
}

// around returns the segment whose memory contains mem, or nil if there is none.
func (s *space) around(mem []byte) *segment {
	if len(mem) == 0 {
		return nil
	}
	for _, seg := range s.segments {
		if inner, outer := rangeOf(mem), rangeOf(seg.mem); outer.lo <= inner.lo && inner.hi <= outer.hi {
			return seg
		}
	}
	return nil
}

// clear unmaps everything. It returns a description of each live allocation. Each description begins with what.
func (s *space) clear(what string) (leaks []string) {
	for _, seg := range s.segments {
		if seg.pool == nil {
			leaks = append(leaks, fmt.Sprintf("%s %d bytes", what, len(seg.mem)))
		}
	}
	s.segments, s.used = nil, 0
	return leaks
}

// left returns the number of bytes that can still be reserved.
func (s *space) left() int64 { return s.limit - s.used }

// room describes the used and the total bytes, for error messages.
func (s *space) room() string { return fmt.Sprintf("%d of %d bytes are in use", s.used, s.limit) }

// span formats device memory as the address range that it covers.
type span device.Memory

func (s span) String() string { return fmt.Sprintf("device memory %#x+%d", s.Addr, s.Bytes) }

// addressRange covers the addresses from lo to hi-1 of this process.
type addressRange struct{ lo, hi uint64 }

func rangeOf(mem []byte) addressRange {
	return addressRange{address(mem), address(mem) + uint64(len(mem))}
}

func (a addressRange) overlaps(o addressRange) bool { return a.lo < o.hi && o.lo < a.hi }

// address returns the address of mem in this process.
func address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// fill sets every byte of mem to value. It doubles the filled part with copy, because a loop over bytes is slow,
// especially under the race detector.
func fill(mem []byte, value byte) {
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
