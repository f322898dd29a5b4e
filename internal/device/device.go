// Package device says what a GPU is to the rest of Millrace: streams, events, pinned memory, memory
// pools, kernels and completions, with CUDA's ordering rules and typed errors.
//
// Three devices implement it and pass one conformance suite (package conformance): cuda drives a GPU
// through libmillrace.so, host runs on CPU cores, sim runs on a virtual clock with injected faults. What is
// written against this package learns nothing of which one it drives.
package device

import (
	"context"
	"time"
)

// Device is one accelerator, or what stands in for one. All methods are safe for concurrent use.
//
// Work is put on streams and runs asynchronously, in order within a stream and in no order between
// streams unless events say so. Nothing that is enqueued blocks the caller.
//
// Once a device is lost (see ErrLost) every method returns an error that wraps ErrLost. It never recovers
// within the process.
type Device interface {
	// Info describes the device. It does not change and makes no call to the hardware.
	Info() Info

	// NewStream makes a stream that does not synchronize with any other stream. name labels it in
	// traces and errors.
	NewStream(name string) (Stream, error)

	// NewEvent makes an event. Only a Timed event has a Time; an untimed one is cheaper.
	NewEvent(flags EventFlags) (Event, error)

	// Enqueue carries out commands in order, each as the method of its stream would, in one call: on a
	// GPU that costs less, and the host is less likely to be interrupted between two of them. Where one
	// fails, the error is that method's, those before it are enqueued and those behind it are not.
	Enqueue(commands []Command) error

	// AllocHost allocates bytes (> 0) of host memory that copies can read and write while the caller
	// does something else: pinned memory. It is expensive (0.6 to 0.8 s a GiB on a GPU): allocate once
	// and cut. The buffer says in Kind what memory it really is. Fails with ErrOutOfMemory.
	AllocHost(bytes int) (HostBuffer, error)

	// FreeHost frees a buffer that AllocHost returned, whole, not a slice of it. No work that uses it
	// may be in flight. The caller owns the buffer still if it fails.
	FreeHost(HostBuffer) error

	// Alloc allocates bytes (> 0) of device memory at once, not in stream order. On a GPU it may wait
	// for all work on the device. Fails with ErrOutOfMemory.
	Alloc(bytes int) (Memory, error)

	// Free frees what Alloc returned. No work that uses it may be in flight.
	Free(Memory) error

	// NewPool makes a pool of device memory for stream-ordered allocation, apart from any default pool.
	NewPool(PoolConfig) (Pool, error)

	// Kernel binds the operator of that name and its parameter block (see package operator) to this
	// device. Fails with ErrNotFound for an unknown name and ErrInvalid for a bad block.
	Kernel(name string, params []byte) (Kernel, error)

	// WaitCompletion returns the token of a Notify whose stream has got there, in the order in which
	// that happened. It blocks without holding a thread for each stream, until there is one, ctx is done
	// (ctx.Err()), the device is lost (ErrLost: completions that had not come never will) or closed
	// (ErrClosed). One goroutine at a time may wait.
	WaitCompletion(ctx context.Context) (token uint64, err error)

	// Now is the time on the device's clock since its Epoch. Events' times are on the same scale, so
	// they can be compared with Now and with events of other streams.
	Now() time.Duration

	// Epoch is the wall-clock time at which the device's clock read zero.
	Epoch() time.Time

	// Err is nil while the device works, and an error that wraps ErrLost from the moment the loss is
	// known. It makes no call to the hardware, so a health probe may call it.
	Err() error

	// Check runs a small operation with a known result on the device, apart from all streams, and waits for it
	// until ctx is done. It returns nil if the device works, an error that wraps ErrLost if it does not (Err
	// returns it from then on), and one that wraps ErrNotReady if the device has not answered by then, which a
	// busy device may not have either. Ask it before a payload is blamed for a failure.
	Check(ctx context.Context) error

	// Close waits for queued work, frees everything still held and shuts the device down. It returns a
	// *LeakError that names what the caller had not closed or freed. A second Close returns nil. Neither it nor closing
	// or freeing something of the device waits without bound: for work that does not end they wait a while and return
	// ErrLost, and on a lost device they free nothing there and return at once.
	Close() error
}

// Info describes a device.
type Info struct {
	Kind    string // "cuda", "host" or "sim"
	ID      string // the GPU's UUID ("GPU-..."), "host", or "sim-<seed>": the label `device` in metrics
	Name    string // for people: "NVIDIA H100 80GB HBM3", "host (16 cores)"
	Ordinal int    // index among the devices of its kind
	Memory  int64  // bytes of device memory in all
	Compute string // compute capability "9.0"; empty where there is none
	Driver  string // driver version; empty where there is none
	Runtime string // runtime version; empty where there is none
	Units   int    // multiprocessors or CPU cores

	// NUMANode is the number of the NUMA node that the device is at; empty where the system does not tell, or has one.
	NUMANode string
}

// Gater is implemented by devices that can stall a stream on purpose. Tests use it to hold work back
// while they look at what must not have happened yet; it has no other use.
type Gater interface {
	// Gate enqueues work on s that finishes only once open is called. A gate nobody opens gives way
	// by itself after ten seconds of the device's time, so that a failing test ends.
	Gate(s Stream) (open func(), err error)
}

// Mapper is implemented by devices whose kernels reach host memory: a GPU's over the bus.
type Mapper interface {
	// Map gives the address at which kernels reach b, which is a buffer of AllocHost or a slice of one. It
	// is for launches alone, and valid until the buffer is freed. Fails with ErrInvalid for other memory.
	Map(b HostBuffer) (Memory, error)
}

// Ranger is implemented by devices whose profiler shows named ranges (NVTX).
type Ranger interface {
	// Range opens a range called name and returns what closes it. Ranges may overlap and may be closed
	// by another goroutine than opened them.
	Range(name string) (end func())
}
