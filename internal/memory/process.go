// Package memory bounds the memory of a worker.
//
//   - Process divides the memory limit of the process: fixed memory for buffers, a limit for the Go runtime, and a limit for payloads.
//   - Worker divides the limit for payloads: prefetched messages, the largest frames, and the limit of a Budget. Its numbers of payloads
//     and batches in flight also bound memory if no limit is known.
//   - Messages computes the maximum memory that one message needs.
//   - Budget counts the memory of the messages that a worker holds, and makes goroutines wait for memory.
//
// The packages of ingest use this package, which doesn't depend on them. Start reading at Process, then Worker, then Budget.
package memory

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Process divides the memory limit of this process. It checks each pipeline before the pipeline allocates memory. A limit that is too
// low is therefore an error at the start, not an out-of-memory kill later. All sizes are in bytes.
type Process struct {
	Limit  int64  // 0 means unknown
	Source string // origin of Limit, for messages to users

	Buffers int64 // buffers of batches, scratch, and the memory of CUDA and the embedded server
	Pinned  int64 // the part of Buffers and States that is pinned
	States  int64 // states of a stateful operator: memory in Go's heap or, for states on GPUs, pinned memory

	// The limits of the Go runtime (GOMEMLIMIT), and of the payloads that the worker holds, with their headers, results and bookkeeping.
	// Both are 0 if Limit is unknown, and until Admit succeeds.
	GoRuntime, Payloads int64

	goMemLimit int64 // GOMEMLIMIT; unset if the user has not set it
	offHeap    int64 // the part of Buffers and States outside Go's heap: pinned memory and CUDA's own memory
	gpus       int
}

const (
	mib = 1 << 20

	// program is the memory of the Go runtime, metrics, the timeline and the HTTP servers.
	program = 48 * mib

	// cuda is the host memory that CUDA uses for the first GPU, and cudaMore is the memory for each further GPU. Both exclude the pinned
	// buffers of batches. Driver 580 used 100 MiB for a context on an H100, most of it mapped files.
	cuda     = 160 * mib
	cudaMore = 64 * mib

	// embeddedServer is the memory reserved for the embedded server. The server may use more.
	embeddedServer = 128 * mib

	// minSlack is the minimum memory that stays free for page tables, sockets, and garbage beyond the runtime's limit. If a sixteenth of the
	// limit is larger, a sixteenth stays free.
	minSlack = 24 * mib

	// minPayloads is the smallest value of Process.Payloads with which the worker starts.
	minPayloads = 16 * mib

	// unset is the value of Process.goMemLimit if the user has not set GOMEMLIMIT.
	unset = math.MaxInt64
)

// NewProcess returns the division of a limit in bytes that the user has set. If limit is 0, it finds the limit. embedded reports whether
// the process runs the embedded server.
func NewProcess(limit int64, embedded bool) *Process {
	p := &Process{Limit: limit, Source: "MILLRACE_MEMORY_LIMIT", goMemLimit: unset}
	if limit == 0 {
		p.Limit, p.Source = find(memlimit.FromCgroup, memlimit.FromSystem)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		p.goMemLimit = debug.SetMemoryLimit(-1) // the runtime has read GOMEMLIMIT
	}
	if embedded {
		p.Buffers = embeddedServer
	}
	return p
}

// find returns the lowest limit of the process's cgroup (version 1 or 2) and its parent groups. If no limit is below the machine's memory,
// or if the limit can't be read, it returns half of that memory. If the machine's memory is unknown, the limit is unknown too.
func find(cgroup, machine memlimit.Provider) (limit int64, source string) {
	total, err := machine()
	if err != nil {
		return 0, "unknown on this system"
	}
	lowest, err := cgroup()
	if err == nil && lowest < total {
		return int64(lowest), "cgroup"
	}
	source = "half of the machine's memory"
	none := errors.Is(err, memlimit.ErrNoLimit) || errors.Is(err, memlimit.ErrNoCgroup) || errors.Is(err, memlimit.ErrCgroupsNotSupported)
	if err != nil && !none {
		source += fmt.Sprintf("; the cgroup's limit is unknown: %v", err)
	}
	return int64(total / 2), source
}

// Admit adds a pipeline with the given sizes of its buffers on the host and on the device. It returns an error if the limit is too low for
// all pipelines together. Admit ignores the device memory of a GPU. The device memory of a CPU is in Go's heap, like its host memory.
func (p *Process) Admit(gpu bool, host, device int64) error {
	p.Buffers += host
	if !gpu {
		p.Buffers += device
		return p.divide()
	}
	driver := int64(cudaMore)
	if p.gpus++; p.gpus == 1 {
		driver = cuda
	}
	p.Buffers += driver
	p.offHeap += host + driver
	p.Pinned += host
	return p.divide()
}

// unlimitedStates is the memory for states if neither the user nor a limit of the process bounds it.
const unlimitedStates = 1 << 30

// AdmitStates reserves memory in Go's heap for the states of a stateful operator on a CPU. Call it after Admit. asked is the size that the
// user has set. If asked is 0, the size is half of the memory that is left after buffers, or 1 GiB if Limit is unknown. AdmitStates
// returns an error if the limit is too low.
func (p *Process) AdmitStates(asked int64) error {
	p.States = asked
	if asked == 0 {
		p.States = unlimitedStates
		if p.Limit > 0 {
			p.States = p.Payloads // divide has halved the remaining memory
		}
	}
	return p.divide()
}

// AdmitPinnedStates reserves the pinned memory of states on GPUs. Call it after Admit. It returns an error if the limit is too low.
func (p *Process) AdmitPinnedStates(bytes int64) error {
	p.States = bytes
	p.Pinned += bytes
	p.offHeap += bytes
	return p.divide()
}

// divide sets the limits of the Go runtime and of payloads. After it subtracts the buffers, the program and the slack, it gives half of the
// rest to payloads and half to uncollected garbage. If too little memory remains, the error names the necessary limit.
func (p *Process) divide() error {
	if p.Limit == 0 {
		return nil
	}
	slack, heap := max(p.Limit/16, minSlack), p.Buffers-p.offHeap+p.States
	most := p.Limit - slack - p.offHeap
	p.GoRuntime = min(most, p.goMemLimit)
	if p.Payloads = (p.GoRuntime - heap - program) / 2; p.Payloads >= minPayloads {
		return nil
	}
	p.GoRuntime, p.Payloads = 0, 0
	if p.goMemLimit < most {
		return fmt.Errorf("GOMEMLIMIT is %d MiB, but these settings need %d MiB: raise it, or unset it and the worker derives it",
			p.goMemLimit/mib, ceil(heap+program+2*minPayloads))
	}
	states, lower := "", ""
	if p.States > 0 {
		states, lower = fmt.Sprintf("%d MiB for states, ", ceil(p.States)), "MILLRACE_STATE_BYTES, "
	}
	return fmt.Errorf("the memory limit is %d MiB (%s), and these settings need %d MiB: %d MiB for the buffers of batches and scratch, %sand "+
		"%d MiB for the program and the payloads that it holds: raise the limit (resources.limits.memory in Kubernetes, MILLRACE_MEMORY_LIMIT "+
		"if that sets it), or lower %sMILLRACE_LANES, MILLRACE_BATCH_PAYLOADS, MILLRACE_BATCH_BYTES or an operator's parameters",
		p.Limit/mib, p.Source, ceil(p.need()), ceil(p.Buffers), states, ceil(p.need()-p.Buffers-p.States), lower)
}

// need returns a limit with which divide succeeds without GOMEMLIMIT. It is at most a few MiB above the lowest such limit.
func (p *Process) need() int64 {
	used := p.Buffers + p.States + program + 2*minPayloads
	return max(used+minSlack, used/15*16+mib)
}

// Apply sets the memory limit of the Go runtime, unless the user has set it.
func (p *Process) Apply() {
	if p.GoRuntime != 0 && p.goMemLimit == unset {
		debug.SetMemoryLimit(p.GoRuntime)
	}
}

// ceil converts bytes to MiB and rounds up.
func ceil(bytes int64) int64 { return (bytes + mib - 1) / mib }
