package device

import "time"

// Stream is a queue of work that a device carries out in order. All methods except Synchronize and Close enqueue work
// and return. The methods are safe for concurrent use; the order of concurrent calls is up to the callers.
//
// An error means that nothing was enqueued, and the caller still owns its buffers. Memory passed to a successful call
// belongs to the device until the stream has passed that call.
type Stream interface {
	// Name returns the name passed to NewStream.
	Name() string

	// CopyIn copies all of src to the start of dst, from host to device. The source may be shorter than dst. An empty
	// src is no work.
	CopyIn(dst Memory, src HostBuffer) error

	// CopyOut copies all of src to the start of dst, from device to host. The source may be shorter than dst.
	CopyOut(dst HostBuffer, src Memory) error

	// Fill sets every byte of dst to value.
	Fill(dst Memory, value byte) error

	// Launch runs k over a batch. It fails with ErrLaunch if the launch itself is refused. A later failure on a GPU
	// loses the device.
	Launch(k Kernel, args LaunchArgs) error

	// Record makes e refer to this point of the stream, and no longer to its previous point.
	Record(e Event) error

	// Wait makes later work on this stream wait until the device has reached the point that e refers to at the time of
	// the call. The host doesn't wait. An event that was never recorded delays nothing; the invariants build panics.
	Wait(e Event) error

	// Notify makes Device.WaitCompletion return token once the stream reaches this point.
	Notify(token uint64) error

	// Synchronize blocks the caller until everything enqueued so far is done.
	Synchronize() error

	// Close waits for the stream's work and frees the stream. A second Close returns nil.
	Close() error
}

// EventFlags are the properties of an event, combined with |. An event with flags 0 is the cheapest.
type EventFlags uint8

// The event flags.
const (
	Timed        EventFlags = 1 << iota // the event has a Time
	BlockingSync                        // Synchronize releases the processor while it waits, and so returns later
)

// Event refers to a point in a stream.
type Event interface {
	// Done reports whether the device has reached that point. It returns true for an event that was never recorded.
	Done() (bool, error)

	// Synchronize blocks the caller until the device has reached that point. It returns at once for an event that was
	// never recorded.
	Synchronize() error

	// Time returns when the device reached that point, on the scale of Device.Now. It fails with ErrNotReady before
	// that, and with ErrInvalid if the event is untimed or was never recorded.
	Time() (time.Duration, error)

	// Close frees the event. A second Close returns nil.
	Close() error
}
