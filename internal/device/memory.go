package device

import "fmt"

// Memory is a span of device memory. Addr means something only to the device that allocated it. The zero
// Memory is no memory.
type Memory struct {
	Addr  uint64
	Bytes int
}

// Slice is the span of n bytes that starts off bytes into m. It panics if that is not within m.
func (m Memory) Slice(off, n int) Memory {
	if off < 0 || n < 0 || off > m.Bytes-n {
		panic(fmt.Sprintf("device: slice [%d:%d+%d] of %d bytes of device memory", off, off, n, m.Bytes))
	}
	return Memory{Addr: m.Addr + uint64(off), Bytes: n}
}

// HostKind says what kind of host memory an allocation really gave.
type HostKind uint8

const (
	Pinned   HostKind = iota + 1 // page-locked: copies are asynchronous and run at the bus's rate
	Pageable                     // ordinary memory: on a GPU a copy is staged, slow and synchronous
)

func (k HostKind) String() string {
	switch k {
	case Pinned:
		return "pinned"
	case Pageable:
		return "pageable"
	}
	return "none"
}

// HostBuffer is a span of host memory that a device copies from and to. It is a value: slices of it share
// its memory, and the whole is freed with Device.FreeHost. The zero HostBuffer is no memory.
type HostBuffer struct {
	mem   []byte
	kind  HostKind
	guard Guard
}

// Guard is told of every look at a buffer's bytes when the invariants build tag is set. A device that
// knows which copies are still to come panics there on a look that CUDA would punish.
type Guard interface {
	// Access panics if work that has not completed reads or writes mem.
	Access(mem []byte)
}

// NewHostBuffer is for devices: it wraps mem, which the device owns. guard may be nil.
func NewHostBuffer(mem []byte, kind HostKind, guard Guard) HostBuffer {
	return HostBuffer{mem: mem[:len(mem):len(mem)], kind: kind, guard: guard}
}

// Len is the buffer's length in bytes.
func (b HostBuffer) Len() int { return len(b.mem) }

// Kind says what kind of memory it is; zero for the zero HostBuffer.
func (b HostBuffer) Kind() HostKind { return b.kind }

// Bytes gives the memory to read and write. The caller must not look at it while work that copies from or
// to it is in flight: ask for Bytes again after completion rather than keep the slice, so that the
// invariants build can check. It is valid until the allocation is freed.
func (b HostBuffer) Bytes() []byte {
	if Invariants && b.guard != nil {
		b.guard.Access(b.mem)
	}
	return b.mem
}

// Raw gives the memory, unchecked. It is for devices, and for memory that the host shares with a kernel while it runs.
func (b HostBuffer) Raw() []byte { return b.mem }

// Slice is the n bytes that start off bytes into b. It panics if that is not within b.
func (b HostBuffer) Slice(off, n int) HostBuffer {
	if off < 0 || n < 0 || off > len(b.mem)-n {
		panic(fmt.Sprintf("device: slice [%d:%d+%d] of a host buffer of %d bytes", off, off, n, len(b.mem)))
	}
	b.mem = b.mem[off : off+n : off+n]
	return b
}
