// Package device defines the interface to a GPU for the rest of Millrace: streams, events, pinned memory, memory pools,
// kernels and completions, with CUDA's ordering rules and typed errors.
//
// Three devices implement the interface and pass one conformance suite (package conformance). Package cuda drives a GPU
// through libmillrace.so, package host runs on CPU cores, and package sim runs on a virtual clock with injected faults.
// Code that uses this package doesn't know which of them it drives.
//
// Packages streams and alloc use it. Start reading with this file, then stream.go for the rules of streams and events,
// and memory.go for memory.
package device

import (
	"context"
	"time"
)

// Device is one accelerator, or a substitute for one. Its methods are safe for concurrent use.
//
// Work is enqueued on streams and runs asynchronously. It runs in order within a stream, and in no particular order
// between streams unless events define one. Enqueuing never blocks the caller.
//
// Once a device is lost (see ErrLost), every method returns an error that wraps ErrLost. A lost device never recovers
// within the process.
type Device interface {
	// Info describes the device. The result never changes, and the call doesn't access the hardware.
	Info() Info

	// NewStream creates a stream that does not synchronize with any other stream. Traces and errors show its name.
	NewStream(name string) (Stream, error)

	// NewEvent creates an event. Only a Timed event has a Time; an untimed event is cheaper.
	NewEvent(flags EventFlags) (Event, error)

	// Enqueue carries out commands in order in a single call. Each command has the effect of the corresponding Stream
	// method. On a GPU, one call costs less than separate calls, and the host is less likely to be interrupted between
	// two commands. If a command fails, Enqueue returns that method's error. Earlier commands have been enqueued then,
	// and later ones have not.
	Enqueue(commands []Command) error

	// AllocHost allocates bytes (> 0) of pinned host memory, which copies can access while the caller does other work.
	// It is expensive (0.6 to 0.8 s per GiB on a GPU): allocate once and cut the memory into buffers. HostBuffer.Kind
	// reports whether the memory is really pinned. AllocHost fails with ErrOutOfMemory.
	AllocHost(bytes int) (HostBuffer, error)

	// FreeHost frees a whole buffer that AllocHost returned, not a slice of it. No work that uses it may be in flight.
	// If FreeHost fails, the caller still owns the buffer.
	FreeHost(HostBuffer) error

	// Alloc allocates bytes (> 0) of device memory immediately, not in stream order. On a GPU it may wait for all work
	// on the device. It fails with ErrOutOfMemory.
	Alloc(bytes int) (Memory, error)

	// Free frees memory that Alloc returned. No work that uses it may be in flight.
	Free(Memory) error

	// NewPool creates a pool of device memory for stream-ordered allocation, separate from any default pool.
	NewPool(PoolConfig) (Pool, error)

	// Kernel binds the operator with that name and its parameter block (see package operator) to this device. It fails
	// with ErrNotFound for an unknown name and ErrInvalid for an invalid block.
	Kernel(name string, params []byte) (Kernel, error)

	// WaitCompletion returns the tokens of Notify calls that their streams have reached, one token per call, in the
	// order in which the streams reached them. It blocks until there is a token, until ctx is done (ctx.Err()), until
	// the device is lost (ErrLost; outstanding completions never arrive) or until it is closed (ErrClosed). Waiting
	// doesn't occupy a thread per stream. Only one goroutine may wait at a time.
	WaitCompletion(ctx context.Context) (token uint64, err error)

	// Now returns the time on the device's clock since its Epoch. Event times use the same scale, so they can be
	// compared with Now and with events of other streams.
	Now() time.Duration

	// Epoch returns the wall-clock time at which the device's clock read zero.
	Epoch() time.Time

	// Err returns nil while the device works, and an error that wraps ErrLost once the loss is known. It makes no call
	// to the hardware, so a health probe may call it.
	Err() error

	// Check runs a small operation with a known result on the device, separate from all streams, and waits for it until
	// ctx is done. It returns nil if the device works. If the device doesn't work, it returns an error that wraps
	// ErrLost, and Err returns that error from then on. If the device has not answered in time, which can also happen
	// on a busy or hung device, it returns an error that wraps ErrNotReady. Call Check before you blame a payload for a
	// failure.
	Check(ctx context.Context) error

	// Close waits for queued work, frees everything that is still allocated and shuts the device down. It returns a
	// *LeakError that names the objects that the caller had not closed or freed. A second Close returns nil. Closing
	// and freeing always return: if the work doesn't end within a time limit, they return ErrLost. On a lost device
	// they free nothing and return at once.
	Close() error
}

// Info describes a device.
type Info struct {
	Kind    string // "cuda", "host" or "sim"
	ID      string // the GPU's UUID ("GPU-..."), "host", or "sim-<seed>"; the value of the label `device` in metrics
	Name    string // display name: "NVIDIA H100 80GB HBM3", "host (16 cores)"
	Ordinal int    // index among the devices of its kind
	Memory  int64  // total device memory, in bytes
	Compute string // compute capability, for example "9.0"; empty if there is none
	Driver  string // driver version; empty if there is none
	Runtime string // runtime version; empty if there is none
	Units   int    // number of multiprocessors or CPU cores

	// NUMANode is the number of the device's NUMA node; empty if the system doesn't report it or has only one.
	NUMANode string
}

// Gater is implemented by devices that can stall a stream on purpose. Tests use it to delay work while they check that
// something has not happened yet.
type Gater interface {
	// Gate enqueues work on s that finishes only after open is called. If nobody opens the gate, it opens after ten
	// seconds of the device's time, so that a failing test ends.
	Gate(s Stream) (open func(), err error)
}

// Mapper is implemented by devices with kernels that can access host memory. A GPU accesses it over the bus.
type Mapper interface {
	// Map returns the address at which kernels can access b, which must be a buffer from AllocHost or a slice of one.
	// The result may only be used in launches, and is valid until the buffer is freed. Map fails with ErrInvalid for
	// other memory.
	Map(b HostBuffer) (Memory, error)
}

// Loader is implemented by devices that can run operators that were compiled for them.
type Loader interface {
	// LoadOperator loads a compiled operator: a cubin, a fatbin or the text of PTX. Afterwards Kernel finds it by its name. Loading may
	// wait for work on the device, so load before work begins. LoadOperator fails with ErrInvalid for another image, for an operator
	// that needs a newer version of the contract, and for a name that the device has already. It fails with ErrUnavailable if the device
	// or its driver can't run the image. Closing the device unloads the operator.
	LoadOperator(image []byte) (Module, error)

	// LoadLibrary opens a library with one operator, which has host code of its own: it may launch several kernels and use other
	// libraries. Afterwards Kernel finds it by its name. The library stays open as long as the process. LoadLibrary fails with
	// ErrUnavailable if the library or one that it needs can't be opened, and otherwise like LoadOperator. It also fails with ErrInvalid
	// for a library that was built for another version of the ABI; the message has both versions.
	LoadLibrary(path string) (Module, error)
}

// Module is an operator that a Loader has loaded.
type Module interface {
	// Name returns the operator's name.
	Name() string

	// Description returns what the operator says about itself, as package compiled decodes it. The caller must not change it.
	Description() []byte

	// Close unloads the operator. It fails with ErrInvalid while a kernel of the operator is open. A second Close returns nil.
	Close() error
}

// Ranger is implemented by devices with a profiler that shows named ranges (NVTX).
type Ranger interface {
	// Range opens a range with that name and returns the function that closes it. Ranges may overlap, and any goroutine
	// may close them.
	Range(name string) (end func())
}
