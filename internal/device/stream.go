package device

import (
	"fmt"
	"time"
)

// Stream is a queue of work that a device carries out in order. All methods except Synchronize and Close enqueue work
// and return. The methods are safe for concurrent use. Concurrent calls have no defined order.
//
// If a method fails, it has enqueued nothing, and the caller still owns its buffers. Memory passed to a successful call
// belongs to the device until the stream has carried out the call.
type Stream interface {
	// CopyIn copies all of src to the start of dst, from host to device. The source may be shorter than dst. An empty
	// src means no work.
	CopyIn(dst Memory, src HostBuffer) error

	// CopyOut copies all of src to the start of dst, from device to host. The source may be shorter than dst.
	CopyOut(dst HostBuffer, src Memory) error

	// Fill sets every byte of dst to value.
	Fill(dst Memory, value byte) error

	// Launch runs k on a batch. It fails with ErrLaunch if the device refuses the launch. If the kernel fails later on
	// a GPU, the device is lost.
	Launch(k Kernel, args LaunchArgs) error

	// Record makes e refer to this point of the stream instead of its previous point.
	Record(e Event) error

	// Wait makes later work on this stream wait until the device has reached the point to which e refers at the time of
	// the call. The host doesn't wait. An event that was never recorded delays nothing, but makes the invariants build
	// panic.
	Wait(e Event) error

	// Notify makes Device.WaitCompletion return token once the stream reaches this point.
	Notify(token uint64) error

	// Synchronize blocks the caller until all work enqueued so far is done.
	Synchronize() error

	// Close waits for the stream's work and frees the stream. A second Close returns nil.
	Close() error
}

// EventFlags holds the properties of an event, combined with |. An event without flags is the cheapest.
type EventFlags uint8

const (
	Timed        EventFlags = 1 << iota // the event has a Time
	BlockingSync                        // Synchronize frees the CPU core while it waits, and so returns later
)

// Event refers to a point in a stream.
type Event interface {
	// Done reports whether the device has reached that point. It returns true for an event that was never recorded.
	Done() (bool, error)

	// Synchronize blocks the caller until the device has reached that point. It returns at once for an event that was
	// never recorded.
	Synchronize() error

	// Time returns the time at which the device reached that point, on the scale of Device.Now. If the device hasn't
	// reached it, Time fails with ErrNotReady. If the event is untimed or was never recorded, Time fails with
	// ErrInvalid.
	Time() (time.Duration, error)

	// Close frees the event. A second Close returns nil.
	Close() error
}

// Kernel is an operator bound to a device with its parameters. It is immutable. It may be launched at any time, on any
// stream of its device.
type Kernel interface {
	// Name returns the operator's name.
	Name() string

	// Needs returns the scratch and result memory for a batch of the given shape. It makes no call to the hardware.
	Needs(Shape) Needs

	// Close frees the kernel's resources on the device. No launch may be in flight. A second Close returns nil.
	Close() error
}

// Shape describes a ragged batch before it runs.
type Shape struct {
	Rows    int // number of rows, one less than the entries of the offsets table
	Bytes   int // total size of the rows in bytes
	Longest int // size of the longest row in bytes
}

// Needs is the memory that one launch needs, in bytes.
type Needs struct {
	Scratch int // scratch, with undefined contents before and after; 0 means none
	Result  int // the operator's result records, one per row, back to back

	// InPlace means that accessing the batch in host memory is faster than copying the batch. A GPU sets it for small
	// batches, and the host device sets it for all batches. Only a device that is a Mapper sets it.
	InPlace bool
}

// LaunchArgs describes one launch on a ragged batch. All memory is device memory, except that with Needs.InPlace, Rows,
// Offsets and Result may be host memory that Mapper.Map has mapped.
type LaunchArgs struct {
	Shape   Shape
	Rows    Memory // bytes of the rows, back to back; Shape.Bytes long
	Offsets Memory // Shape.Rows+1 little-endian uint32: row i is Rows[Offsets[i]:Offsets[i+1]]
	Scratch Memory // at least Needs.Scratch bytes, aligned to 256
	Result  Memory // at least Needs.Result bytes, aligned to 256
}

// HostKernel is an operator written in Go, for devices that use host memory as device memory (host and sim).
type HostKernel interface {
	// Name returns the operator's name.
	Name() string

	// Bind checks a parameter block and returns the operator bound to it. It fails with ErrInvalid for an invalid
	// block.
	Bind(params []byte) (BoundHostKernel, error)
}

// BoundHostKernel is a HostKernel with its parameters. It is immutable.
type BoundHostKernel interface {
	// Needs has the meaning of Kernel.Needs.
	Needs(Shape) Needs

	// Run computes the batch, in which row i is rows[offsets[i]:offsets[i+1]]. The slices scratch and result have at
	// least the length that Needs returns, undefined contents and an alignment of 8 bytes. Run may use parallel to
	// distribute its work. It must not use its arguments after it returns.
	Run(rows []byte, offsets []uint32, scratch, result []byte, parallel Parallel) error
}

// Parallel calls fn(0) to fn(n-1), possibly concurrently, and returns when all calls have returned.
type Parallel func(n int, fn func(i int))

// CommandKind identifies the Stream method that a Command calls.
type CommandKind uint8

// The command kinds. Each comment lists the fields of Command that the kind uses besides Stream.
const (
	DoCopyIn  CommandKind = iota + 1 // Memory, Host
	DoCopyOut                        // Host, Memory
	DoFill                           // Memory, Value
	DoLaunch                         // Kernel, Args
	DoRecord                         // Event
	DoWait                           // Event
	DoNotify                         // Value
)

func (c CommandKind) String() string {
	return [...]string{"no command", "copy in", "copy out", "fill", "launch", "record", "wait", "notify"}[c]
}

// Command is a call of a Stream method as a value, for Device.Enqueue.
type Command struct {
	Kind   CommandKind
	Stream Stream
	Host   HostBuffer
	Memory Memory
	Event  Event
	Kernel Kernel
	Args   *LaunchArgs // read during the call
	Value  uint64      // token of a notification, or byte of a fill
}

// EnqueueEach implements Device.Enqueue with one call per command, for devices on which calls are cheap.
func EnqueueEach(commands []Command) error {
	for i := range commands {
		if err := commands[i].enqueue(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Command) enqueue() error {
	switch s := c.Stream; c.Kind {
	case DoCopyIn:
		return s.CopyIn(c.Memory, c.Host)
	case DoCopyOut:
		return s.CopyOut(c.Host, c.Memory)
	case DoFill:
		return s.Fill(c.Memory, byte(c.Value))
	case DoLaunch:
		return s.Launch(c.Kernel, *c.Args)
	case DoRecord:
		return s.Record(c.Event)
	case DoWait:
		return s.Wait(c.Event)
	case DoNotify:
		return s.Notify(c.Value)
	}
	panic(fmt.Sprintf("device: there is no command %d", c.Kind))
}
