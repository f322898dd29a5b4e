package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/ingest/finding"
	"millrace/internal/memory"
	"millrace/internal/streams"
)

const (
	// cudaMemory is the host memory in bytes that CUDA uses for the first GPU. cudaMemoryMore is the memory for each
	// further GPU. Both exclude the pinned buffers of batches. Driver 580 used 100 MiB for a context on an H100, most
	// of it mapped files.
	cudaMemory     = 160 << 20
	cudaMemoryMore = 64 << 20

	// embeddedMemory is the memory in bytes reserved for the embedded server. The server may use more.
	embeddedMemory = 128 << 20
)

// memoryBudget divides the memory limit of the process among the pipelines and the payloads that the worker holds. It
// checks each pipeline before the pipeline allocates memory. So a limit that is too low is an error at the start, not
// an out-of-memory kill later.
type memoryBudget struct {
	limit  memory.Limit
	heap   int64 // GOMEMLIMIT; memory.Unset if the user has not set it
	fixed  memory.Fixed
	pinned int64
	gpus   int
	plan   memory.Plan
}

// newMemoryBudget returns a budget with the memory limit. The limit is MILLRACE_MEMORY_LIMIT, the limit of the cgroup,
// or half of the machine's memory.
func newMemoryBudget(cfg *config.Config) *memoryBudget {
	b := &memoryBudget{heap: memory.Unset, limit: memory.Limit{Bytes: int64(cfg.MemoryLimit), Source: "MILLRACE_MEMORY_LIMIT"}}
	if cfg.MemoryLimit == 0 {
		b.limit = memory.Find()
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		b.heap = debug.SetMemoryLimit(-1) // the runtime has read GOMEMLIMIT
	}
	if cfg.Embedded() {
		b.fixed.Heap = embeddedMemory
	}
	return b
}

// admit returns a function that adds a pipeline on a device of that kind. The function returns an error if the limit is
// too low for all pipelines together.
func (m *memoryBudget) admit(kind string) func(streams.Footprint) error {
	return func(f streams.Footprint) (err error) {
		if kind == "cuda" {
			m.fixed.OffHeap += f.Host + cudaMemoryMore
			if m.gpus++; m.gpus == 1 {
				m.fixed.OffHeap += cudaMemory - cudaMemoryMore
			}
			m.pinned += f.Host
		} else {
			m.fixed.Heap += f.Host + f.Device + f.Scratch
		}
		if m.plan, err = m.limit.Divide(m.fixed, m.heap); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// apply sets the memory limit of the Go runtime, unless the user has set it.
func (m *memoryBudget) apply(log *slog.Logger) {
	if m.plan.Heap == 0 {
		return
	}
	if m.heap == memory.Unset {
		debug.SetMemoryLimit(m.plan.Heap)
	}
	log.Info("memory", "limit", config.Size(m.limit.Bytes).String(), "from", m.limit.Source, "buffers_mib", (m.fixed.Heap+m.fixed.OffHeap)>>20,
		"go_limit_mib", m.plan.Heap>>20, "in_hand_mib", m.plan.Payloads>>20)
}

// explain adds advice to the error of a pipeline if the limit of locked memory may be the cause.
func (m *memoryBudget) explain(err error) error {
	if hint := m.lockedHint(); hint != "" && errors.Is(err, device.ErrOutOfMemory) {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}

// lockedHint returns advice if the limit of locked memory may be the reason why pinning failed. Otherwise it returns
// "". A low limit alone doesn't prevent a start, because driver 580 pins more than the limit and charges the cgroup for
// it.
func (m *memoryBudget) lockedHint() string {
	var locked unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &locked); err != nil || uint64(m.pinned) <= locked.Cur {
		return ""
	}
	return fmt.Sprintf("the worker pins %d MiB, but the process may lock only %d MiB (RLIMIT_MEMLOCK): raise that limit with ulimit -l, LimitMEMLOCK= "+
		"in a systemd unit, or --ulimit memlock for a container", m.pinned>>20, locked.Cur>>20)
}

// finding describes the division of the limit, for `worker check`.
func (m *memoryBudget) finding() finding.Finding {
	f := finding.Finding{What: "memory"}
	if m.plan.Heap == 0 {
		f.Found = "no limit is known: only the batches limit the payloads that the worker holds"
		return f
	}
	f.Found = fmt.Sprintf("%d MiB (%s): %d MiB for buffers, %d MiB for payloads in flight and their results, Go runtime below %d MiB",
		m.limit.Bytes>>20, m.limit.Source, (m.fixed.Heap+m.fixed.OffHeap)>>20, m.plan.Payloads>>20, m.plan.Heap>>20)
	return f
}
