package device

import "time"

// Stream is a queue of work that a device carries out in order. Every method but Synchronize and Close
// enqueues and returns. Methods are safe for concurrent use, but the order of concurrent calls is theirs.
//
// An error means that nothing was enqueued; the caller owns its buffers as before. Memory that was
// handed to a successful call belongs to the device until the stream has passed that call.
type Stream interface {
	// Name is the one given to NewStream.
	Name() string

	// CopyIn copies all of src to the start of dst, host to device. src may be shorter than dst. An
	// empty src is no work.
	CopyIn(dst Memory, src HostBuffer) error

	// CopyOut copies all of src to the start of dst, device to host. src may be shorter than dst.
	CopyOut(dst HostBuffer, src Memory) error

	// Fill sets every byte of dst to value.
	Fill(dst Memory, value byte) error

	// Launch runs k over a batch. Fails with ErrLaunch when the launch itself is refused; what goes
	// wrong later on a GPU loses the device.
	Launch(k Kernel, args LaunchArgs) error

	// Record marks this point of the stream in e, and forgets what e marked before.
	Record(e Event) error

	// Wait makes later work on this stream wait until the device has reached what e marks now. Work of
	// the host does not wait. An event never recorded holds nothing up (the invariants build panics).
	Wait(e Event) error

	// Notify makes Device.WaitCompletion return token once the stream gets here.
	Notify(token uint64) error

	// Synchronize blocks the caller until everything enqueued so far is done.
	Synchronize() error

	// Close waits for the stream's work and gives the stream back. A second Close returns nil.
	Close() error
}

// EventFlags say what an event can do, joined by |. 0 is the cheapest event.
type EventFlags uint8

// The flags.
const (
	Timed        EventFlags = 1 << iota // has a Time
	BlockingSync                        // Synchronize gives the processor away while it waits, and returns later for it
)

// Event marks a point in a stream.
type Event interface {
	// Done says whether the device has reached the mark; true for an event never recorded.
	Done() (bool, error)

	// Synchronize blocks the caller until the device has reached the mark; not at all for an event never
	// recorded.
	Synchronize() error

	// Time is when the device reached the mark, on the scale of Device.Now. ErrNotReady before it did,
	// ErrInvalid if the event is untimed or never recorded.
	Time() (time.Duration, error)

	// Close gives the event back. A second Close returns nil.
	Close() error
}
