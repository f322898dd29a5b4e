package alloc

import "fmt"

// Mode says where scratch comes from. Kept is what the worker uses; the others are there to be measured
// against it.
type Mode uint8

// The modes.
const (
	Kept         Mode = iota // from a pool in stream order, which keeps what it holds
	Released                 // from a pool that gives unused memory back at every synchronization
	Synchronous              // from the device at every batch, and back, which waits for the batch's kernels
	Preallocated             // one piece for each stream, taken once, of the largest size
)

func (m Mode) String() string {
	switch m {
	case Kept:
		return "async-kept"
	case Released:
		return "async-0"
	case Synchronous:
		return "synchronous"
	case Preallocated:
		return "preallocated"
	}
	return fmt.Sprintf("mode %d", uint8(m))
}
