// Package memory determines the memory limit of this process. It divides the limit into fixed memory for buffers, a
// limit for the Go runtime, and a limit for the payloads that the worker holds. cmd/worker uses the package at its
// start, before any large allocation.
//
// Start reading at Find and at Limit.Divide.
package memory

import (
	"errors"
	"fmt"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Limit is the memory limit of the process.
type Limit struct {
	Bytes  int64  // limit in bytes; 0 means unknown
	Source string // origin of the limit, for messages to people
}

// Find returns the lowest limit of the process's cgroup (version 1 or 2) and its parent groups. If no limit is below
// the machine's memory, or if the limit can't be read, Find returns half of that memory. If the machine's memory is
// unknown, the limit is unknown too.
func Find() Limit { return find(memlimit.FromCgroup, memlimit.FromSystem) }

// unlimitedShare is the divisor of the machine's memory for a process without a cgroup limit.
const unlimitedShare = 2

// find implements Find with the given providers of the cgroup's limit and of the machine's memory.
func find(cgroup, machine memlimit.Provider) Limit {
	total, err := machine()
	if err != nil {
		return Limit{Source: "unknown on this system"}
	}
	limit, err := cgroup()
	if err == nil && limit < total {
		return Limit{Bytes: int64(limit), Source: "cgroup"}
	}
	half := Limit{Bytes: int64(total / unlimitedShare), Source: "half of the machine's memory"}
	none := errors.Is(err, memlimit.ErrNoLimit) || errors.Is(err, memlimit.ErrNoCgroup) || errors.Is(err, memlimit.ErrCgroupsNotSupported)
	if err != nil && !none {
		half.Source += fmt.Sprintf("; the cgroup's limit is unknown: %v", err)
	}
	return half
}

// Fixed is the memory in bytes that the process needs regardless of its load.
type Fixed struct {
	Heap    int64 // memory in Go's heap: the buffers and the scratch of a CPU device
	OffHeap int64 // memory outside Go's heap: pinned buffers and CUDA's own memory
}

// Plan is the division of a limit. All fields are in bytes. The zero Plan limits nothing.
type Plan struct {
	Heap     int64 // the limit of the Go runtime (GOMEMLIMIT)
	Payloads int64 // the limit for the payloads that the worker holds, including their headers, results and bookkeeping
}

const (
	mib = 1 << 20

	// program is the memory of the Go runtime, metrics, the timeline and the HTTP servers.
	program = 48 * mib

	// minSlack is the minimum memory that stays free. Divide reserves a sixteenth of the limit instead if that is
	// larger. It is for page tables, for sockets, and for garbage that exceeds the runtime's limit.
	minSlack = 24 * mib

	// minPayloads is the smallest value of Plan.Payloads with which the worker starts.
	minPayloads = 16 * mib
)

// Divide divides the limit. Of the memory that remains after f, the program and the slack, half is for payloads and
// half for uncollected garbage. heap is the user's GOMEMLIMIT in bytes, or Unset. If too little memory remains, the
// error names the necessary limit. For an unknown limit, Divide returns the zero Plan.
func (l Limit) Divide(f Fixed, heap int64) (Plan, error) {
	if l.Bytes == 0 {
		return Plan{}, nil
	}
	slack := max(l.Bytes/16, minSlack)
	p := Plan{Heap: min(l.Bytes-slack-f.OffHeap, heap)}
	if p.Payloads = (p.Heap - f.Heap - program) / 2; p.Payloads >= minPayloads {
		return p, nil
	}
	if heap < l.Bytes-slack-f.OffHeap {
		return Plan{}, fmt.Errorf("GOMEMLIMIT is %d MiB, but these settings need %d MiB: raise it, or unset it and the worker derives it", heap/mib, ceil(f.Heap+program+2*minPayloads))
	}
	buffers, need := f.Heap+f.OffHeap, l.need(f)
	return Plan{}, fmt.Errorf("the memory limit is %d MiB (%s), and these settings need %d MiB: %d MiB for the buffers of batches and scratch, and %d MiB for "+
		"the program and the payloads that it holds: raise the limit (resources.limits.memory in Kubernetes, MILLRACE_MEMORY_LIMIT if that sets it), or lower "+
		"MILLRACE_LANES, MILLRACE_BATCH_PAYLOADS, MILLRACE_BATCH_BYTES or an operator's parameters",
		l.Bytes/mib, l.Source, ceil(need), ceil(buffers), ceil(need-buffers))
}

// need returns a limit in bytes with which Divide succeeds without GOMEMLIMIT. It is at most a few MiB above the lowest
// such limit.
func (l Limit) need(f Fixed) int64 {
	used := f.Heap + f.OffHeap + program + 2*minPayloads
	return max(used+minSlack, used/15*16+mib)
}

// ceil converts bytes to MiB and rounds up.
func ceil(bytes int64) int64 { return (bytes + mib - 1) / mib }

// Unset is the heap argument of Divide if the user has not set GOMEMLIMIT.
const Unset = math.MaxInt64
