// Package device defines Millrace's interface to a GPU: streams, events, pinned memory, memory pools, kernels and
// completions. It follows CUDA's ordering rules and has typed errors.
//
// Three devices implement the interface and pass one conformance suite (package conformance). Package cuda drives a GPU
// through libmillrace.so, package host runs on CPU cores, and package sim runs on a virtual clock with injected faults.
//
// Package streams is the main user of this package. Start reading with this file, then stream.go for streams and events, and memory.go for
// memory.
package device

import (
	"context"
	"time"
)

// Device is an accelerator or a substitute for one. Its methods are safe for concurrent use.
//
// Work is enqueued on streams and runs asynchronously. It runs in order within a stream. Between streams, only events
// define an order. Enqueuing doesn't wait for the work, except while a stream's queue is full.
//
// Once a device is lost (see ErrLost), every method returns an error that wraps ErrLost. A lost device never recovers
// within the process.
type Device interface {
	// Info describes the device. The result never changes, and the call doesn't access the hardware.
	Info() Info

	// NewStream creates a stream that does not synchronize with any other stream. Traces and errors show its name.
	NewStream(name string) (Stream, error)

	// NewEvent creates an event. Only a Timed event has a Time. An untimed event is cheaper.
	NewEvent(flags EventFlags) (Event, error)

	// Enqueue carries out commands in order in a single call. Each command has the effect of the corresponding Stream
	// method. On a GPU, one call costs less than separate calls, and the host is less likely to be interrupted between
	// two commands. If a command fails, Enqueue returns the method's error. It has enqueued the earlier commands and
	// drops the later commands.
	Enqueue(commands []Command) error

	// AllocHost allocates bytes (> 0) of pinned host memory, which copies can access while the caller does other work.
	// It is slow (0.6 to 0.8 s per GiB on a GPU), so allocate once and divide the memory into buffers. HostBuffer.Kind
	// reports whether the memory is really pinned. If the memory doesn't fit, AllocHost fails with ErrOutOfMemory.
	AllocHost(bytes int) (HostBuffer, error)

	// FreeHost frees a whole buffer that AllocHost returned, not a slice of one. No work in flight may use the buffer.
	// If FreeHost fails, the caller still owns the buffer.
	FreeHost(HostBuffer) error

	// Alloc allocates bytes (> 0) of device memory immediately, not in stream order. On a GPU, it may wait for all work
	// on the device. If the memory doesn't fit, it fails with ErrOutOfMemory.
	Alloc(bytes int) (Memory, error)

	// Free frees memory that Alloc returned. No work in flight may use the memory.
	Free(Memory) error

	// NewPool creates a pool of device memory for stream-ordered allocation, separate from any default pool.
	NewPool(PoolOptions) (Pool, error)

	// Kernel binds the named operator and its parameter block (see package operator) to this device. It fails with
	// ErrNotFound for an unknown name and with ErrInvalid for an invalid block.
	Kernel(name string, params []byte) (Kernel, error)

	// NewState creates an empty state of the named stateful operator and allocates all of the state's memory. params is the parameter block
	// of the operator's kernel. NewState fails like Kernel. It also fails with ErrNotFound for an operator without a state, with ErrInvalid
	// for an invalid size, and with ErrOutOfMemory. The caller must close the state before the device.
	NewState(name string, params []byte, size StateSize) (State, error)

	// StateBytes returns the size of the memory that NewState allocates. It fails like NewState, but not with ErrOutOfMemory.
	StateBytes(name string, params []byte, size StateSize) (StateMemory, error)

	// WaitCompletion waits until a stream has reached a Notify call, and returns the call's token. It returns tokens in
	// the order in which streams reached the calls. It fails with ctx.Err() when ctx is done, with ErrLost when the device
	// is lost, and with ErrClosed when the device is closed. After a loss, outstanding completions never arrive. Waiting
	// doesn't occupy a thread per stream. Only one goroutine may wait at a time.
	WaitCompletion(ctx context.Context) (token uint64, err error)

	// Now returns the time since Epoch on the device's clock. Event times are on the same scale, so they can be
	// compared with Now and with events of other streams.
	Now() time.Duration

	// Epoch returns the wall-clock time at which the device's clock read zero.
	Epoch() time.Time

	// Err returns nil while the device works. Once the device's loss is known, Err returns an error that wraps ErrLost.
	// Err makes no call to the hardware, so a health check may call it.
	Err() error

	// Check runs a small operation with a known result on the device, separate from all streams. It waits for the result
	// until ctx is done. It returns nil if the device works. If the device doesn't work, the error wraps ErrLost, and Err
	// returns it from then on. If a busy or hung device has not answered in time, the error wraps ErrNotReady. Call Check
	// before you attribute a failure to a payload.
	Check(ctx context.Context) error

	// Close waits for queued work, frees everything that is still allocated and shuts the device down. It returns a
	// *LeakError if the caller had not closed or freed all objects. A second Close returns nil. All methods that close or
	// free return ErrLost if queued work doesn't end within a time limit. On a lost device, they return at once, and may
	// free nothing.
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

	// NUMANode is the number of the device's NUMA node. It is empty if the system doesn't report a node or has only
	// one.
	NUMANode string
}

// Gater is implemented by devices that can stall a stream on purpose. Tests use it to delay work while they check that
// something has not happened yet.
type Gater interface {
	// Gate enqueues work on s that finishes only after open is called. After ten seconds of the device's time, the gate
	// opens by itself, so that a failing test ends.
	Gate(s Stream) (open func(), err error)
}

// Mapper is implemented by devices with kernels that can access host memory. A GPU accesses that memory over the bus.
type Mapper interface {
	// Map returns the address at which kernels can access b, a buffer from AllocHost or a slice of one. The address is
	// for launches only, and is valid until the buffer is freed. For other memory, Map fails with ErrInvalid.
	Map(b HostBuffer) (Memory, error)
}

// Loader is implemented by devices that can run operators that were compiled for them.
type Loader interface {
	// LoadOperator loads a compiled operator: a cubin, a fatbin or PTX text. Afterwards Kernel finds the operator by
	// its name. Loading may wait for work on the device, so load before work begins. LoadOperator fails with ErrInvalid
	// for any other image, for a name that the device already has, and for an operator that needs a newer contract. It
	// fails with ErrUnavailable if the device or its driver can't run the image. Closing the device unloads the
	// operator.
	LoadOperator(image []byte) (Module, error)

	// LoadLibrary opens a library with one operator that has its own host code. That code may launch several kernels
	// and use other libraries. Afterwards Kernel finds the operator by its name. The library stays open until the
	// process ends. LoadLibrary fails with ErrUnavailable if the library or one of its dependencies can't be opened. It
	// fails with ErrInvalid for a library of a different ABI version. Otherwise it fails like LoadOperator.
	LoadLibrary(path string) (Module, error)
}

// Module is an operator that a Loader has loaded.
type Module interface {
	// Name returns the operator's name.
	Name() string

	// Description returns the operator's description of itself, in the format of package compiled. The caller must not
	// change it.
	Description() []byte

	// Close unloads the operator. It fails with ErrInvalid while a kernel of the operator is open. A second Close returns nil.
	Close() error
}

// Ranger is implemented by devices with a profiler that shows named ranges (NVTX).
type Ranger interface {
	// Range opens a range and returns the function that closes it. Ranges may overlap, and any goroutine may close
	// them.
	Range(name string) (end func())
}
