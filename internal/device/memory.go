package device

import (
	"fmt"

	"millrace/internal/invariants"
)

// Memory is a span of device memory. Only the device that allocated it can interpret Addr. The zero Memory is empty.
type Memory struct {
	Addr  uint64
	Bytes int
}

// Slice returns the span of n bytes that starts at offset off of m. It panics if that span is not within m.
func (m Memory) Slice(off, n int) Memory {
	if off < 0 || n < 0 || off > m.Bytes-n {
		panic(fmt.Sprintf("device: slice [%d:%d+%d] of %d bytes of device memory", off, off, n, m.Bytes))
	}
	return Memory{Addr: m.Addr + uint64(off), Bytes: n}
}

// HostKind is the kind of host memory that an allocation returned.
type HostKind uint8

const (
	Pinned   HostKind = iota + 1 // page-locked memory; copies are asynchronous and run at bus speed
	Pageable                     // ordinary memory; on a GPU, copies are staged, slow and synchronous
)

// HostBuffer is a span of host memory that a device copies from and to. Slices of a buffer share its memory, and
// Device.FreeHost frees the whole buffer. The zero HostBuffer has no memory.
type HostBuffer struct {
	mem   []byte
	kind  HostKind
	guard Guard
}

// Invariants reports whether the build tag `invariants` is set. With the tag, devices panic on misuse.
const Invariants = invariants.On

// Guard checks every access to a buffer's bytes if the build tag `invariants` is set.
type Guard interface {
	// Access panics if work that has not completed reads or writes mem.
	Access(mem []byte)
}

// NewHostBuffer wraps memory that a device owns. It is meant for implementations of Device. guard may be nil.
func NewHostBuffer(mem []byte, kind HostKind, guard Guard) HostBuffer {
	return HostBuffer{mem: mem[:len(mem):len(mem)], kind: kind, guard: guard}
}

// Len returns the buffer's length in bytes.
func (h HostBuffer) Len() int { return len(h.mem) }

// Kind returns the kind of memory, or 0 for the zero HostBuffer.
func (h HostBuffer) Kind() HostKind { return h.kind }

// Bytes returns the memory for reading and writing. The caller must not access the slice while work that copies from or
// to it is in flight. Call Bytes again after completion instead of keeping the slice, so that the invariants build can
// check the access. The slice is valid until the allocation is freed.
func (h HostBuffer) Bytes() []byte {
	if Invariants && h.guard != nil {
		h.guard.Access(h.mem)
	}
	return h.mem
}

// Raw returns the memory without a check. It is meant for implementations of Device, and for memory that the host
// shares with a running kernel.
func (h HostBuffer) Raw() []byte { return h.mem }

// Slice returns the n bytes that start at offset off of h. It panics if that span is not within h.
func (h HostBuffer) Slice(off, n int) HostBuffer {
	if off < 0 || n < 0 || off > len(h.mem)-n {
		panic(fmt.Sprintf("device: slice [%d:%d+%d] of a host buffer of %d bytes", off, off, n, len(h.mem)))
	}
	h.mem = h.mem[off : off+n : off+n]
	return h
}

// PoolOptions holds the limits of a pool.
type PoolOptions struct {
	// Limit is the maximum number of bytes that the pool takes from the device. 0 means that only the device's memory
	// limits the pool. An allocation beyond the limit fails with ErrOutOfMemory. Devices may round the limit up to
	// their granularity (2 MiB on a GPU).
	Limit int64

	// ReleaseThreshold is the number of unused bytes that the pool keeps when the device synchronizes. With 0, the pool
	// returns memory at every synchronization and must request it again at the next allocation.
	ReleaseThreshold int64
}

// Pool allocates device memory in stream order. Its methods are safe for concurrent use.
type Pool interface {
	// Alloc returns bytes (> 0) of memory, aligned to 256 bytes, for work that is enqueued on s from now on. Alloc
	// returns at once, even if earlier work on s still uses the memory. If Alloc fails with ErrOutOfMemory, s is
	// unchanged.
	Alloc(s Stream, bytes int) (Memory, error)

	// Free frees m when s reaches this point. Later allocations on s may reuse the memory at once. Allocations on other
	// streams may reuse it only after s has reached this point.
	Free(s Stream, m Memory) error

	// Trim returns unused memory to the device, as long as at least keep bytes stay reserved.
	Trim(keep int64) error

	// Stats returns the pool's counters.
	Stats() (PoolStats, error)

	// Close frees the pool once all of its memory has been freed. No Alloc may follow. A second Close returns nil.
	Close() error
}

// PoolStats holds a pool's counters, in bytes.
type PoolStats struct {
	Used         int64 // currently allocated
	Reserved     int64 // currently taken from the device
	UsedHigh     int64 // maximum of Used since the pool was created
	ReservedHigh int64 // maximum of Reserved
}
