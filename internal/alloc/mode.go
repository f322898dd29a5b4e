package alloc

import "fmt"

// Mode selects where scratch comes from. The worker uses Kept. The other modes exist for comparison in benchmarks,
// except that Preallocated also replaces Kept on a device without pools.
type Mode uint8

// The modes.
const (
	Kept         Mode = iota // a stream-ordered pool that keeps its memory
	Released                 // a stream-ordered pool that returns unused memory at every synchronization
	Synchronous              // device memory, allocated and freed for each batch, which waits for the batch's kernels
	Preallocated             // one piece of the largest size per stream, allocated once
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
