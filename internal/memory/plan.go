package memory

import (
	"fmt"
	"math"
)

// Fixed is what a process takes whatever its load, in bytes.
type Fixed struct {
	Heap   int64 // of Go's heap: the buffers and the scratch of a CPU
	Beside int64 // beside Go's heap: pinned buffers, what CUDA takes for itself
}

// Plan divides a limit. The zero Plan bounds nothing.
type Plan struct {
	Heap int64 // what the Go runtime is to stay below (GOMEMLIMIT)
	Hand int64 // what payloads in hand, and everything that belongs to them, may take
}

const (
	mib = 1 << 20

	// program is what the Go runtime, metrics, the timeline and HTTP servers take.
	program = 48 * mib

	// leastSlack, and a sixteenth of the limit if that is more, stays free: page tables, sockets, and what the runtime takes before it
	// has collected.
	leastSlack = 24 * mib

	// leastHand is how much for payloads in hand is worth starting with.
	leastHand = 16 * mib
)

// Divide divides the limit. What is left after f is halved: as much is for garbage until it is collected. heap is the most that the Go
// runtime may take by what the user has set, math.MaxInt64 for nothing. It fails when too little is left, and says how much is needed.
func (l Limit) Divide(f Fixed, heap int64) (Plan, error) {
	if l.Bytes == 0 {
		return Plan{}, nil
	}
	slack := max(l.Bytes/16, leastSlack)
	p := Plan{Heap: min(l.Bytes-slack-f.Beside, heap)}
	if p.Hand = (p.Heap - f.Heap - program) / 2; p.Hand >= leastHand {
		return p, nil
	}
	if heap < l.Bytes-slack-f.Beside {
		return Plan{}, fmt.Errorf("GOMEMLIMIT is %d MiB, and these settings need %d MiB: raise it, or unset it to have it derived", heap/mib, ceil(f.Heap+program+2*leastHand))
	}
	return Plan{}, &ShortError{Limit: l, Fixed: f, Need: l.need(f)}
}

// need is the lowest limit with which Divide succeeds.
func (l Limit) need(f Fixed) int64 {
	used := f.Heap + f.Beside + program + 2*leastHand
	return max(used+leastSlack, used/15*16+mib)
}

func ceil(bytes int64) int64 { return (bytes + mib - 1) / mib }

// ShortError says that a limit is too low.
type ShortError struct {
	Limit Limit
	Fixed Fixed
	Need  int64 // the limit that would do
}

func (e *ShortError) Error() string {
	return fmt.Sprintf("the memory limit is %d MiB (%s), and these settings need %d MiB: %d MiB for the buffers of batches and scratch, and %d MiB for "+
		"the program and payloads in hand: raise the limit (resources.limits.memory in Kubernetes, MILLRACE_MEMORY_LIMIT if that sets it), or lower "+
		"MILLRACE_LANES, MILLRACE_BATCH_PAYLOADS, MILLRACE_BATCH_BYTES or an operator's parameters",
		e.Limit.Bytes/mib, e.Limit.Source, ceil(e.Need), ceil(e.Fixed.Heap+e.Fixed.Beside), ceil(e.Need-e.Fixed.Heap-e.Fixed.Beside))
}

// Unset stands for a heap that the user has set no limit for.
const Unset = math.MaxInt64
