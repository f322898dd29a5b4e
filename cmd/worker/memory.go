package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/ingest/finding"
	"millrace/internal/memory"
	"millrace/internal/streams"
)

const (
	// cudaMemory is what CUDA takes of the host's memory for its first GPU, and cudaMemoryMore for each further one, beside what is
	// pinned for batches. Driver 580 took 100 MiB for a context on an H100, most of them files that are mapped.
	cudaMemory     = 160 << 20
	cudaMemoryMore = 64 << 20

	// embeddedMemory is set aside for the embedded server, which may take more: it is for trying things out.
	embeddedMemory = 128 << 20

	// unboundedShare is the part of the machine's memory that a worker takes at most where nobody sets a limit: half.
	unboundedShare = 2
)

// memoryBudget divides the process's memory limit among the pipelines and the payloads in hand. Each pipeline is admitted before it
// takes its memory, so that what cannot fit is an error and not a kill.
type memoryBudget struct {
	limit  memory.Limit
	heap   int64 // what the user lets the Go runtime take; memory.Unset for no word on it
	fixed  memory.Fixed
	pinned int64
	gpus   int
	plan   memory.Plan
}

// newMemoryBudget finds the limit: MILLRACE_MEMORY_LIMIT, or what the cgroup or the machine has.
func newMemoryBudget(cfg *config.Config) (*memoryBudget, error) {
	b := &memoryBudget{heap: memory.Unset}
	if os.Getenv("GOMEMLIMIT") != "" {
		b.heap = debug.SetMemoryLimit(-1) // the runtime has read it
	}
	if cfg.Embedded() {
		b.fixed.Heap = embeddedMemory
	}
	found, err := memory.Find(os.DirFS("/"))
	switch {
	case cfg.MemoryLimit > 0:
		b.limit = memory.Limit{Bytes: int64(cfg.MemoryLimit), Source: "MILLRACE_MEMORY_LIMIT"}
	case err != nil:
		return nil, fmt.Errorf("find the memory limit (set MILLRACE_MEMORY_LIMIT to go without): %w", err)
	case found.Machine:
		b.limit = memory.Limit{Bytes: found.Bytes / unboundedShare, Source: "half of the machine's memory"}
	default:
		b.limit = found
	}
	return b, nil
}

// admit enters a pipeline on a device of that kind, unless the limit is too low for it and those before it.
func (b *memoryBudget) admit(kind string) func(streams.Footprint) error {
	return func(f streams.Footprint) (err error) {
		if kind == "cuda" {
			b.fixed.Beside += f.Host + cudaMemoryMore
			if b.gpus++; b.gpus == 1 {
				b.fixed.Beside += cudaMemory - cudaMemoryMore
			}
			b.pinned += f.Host
		} else {
			b.fixed.Heap += f.Host + f.Device + f.Scratch
		}
		if b.plan, err = b.limit.Divide(b.fixed, b.heap); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// apply tells the Go runtime its limit, unless the user has.
func (b *memoryBudget) apply(log *slog.Logger) {
	if b.plan.Heap == 0 {
		return
	}
	if b.heap == memory.Unset {
		debug.SetMemoryLimit(b.plan.Heap)
	}
	log.Info("memory", "limit", config.Size(b.limit.Bytes).String(), "from", b.limit.Source, "buffers_mib", (b.fixed.Heap+b.fixed.Beside)>>20,
		"go_limit_mib", b.plan.Heap>>20, "in_hand_mib", b.plan.Hand>>20)
}

// explain adds to the error of a pipeline what to set, where that is known.
func (b *memoryBudget) explain(err error) error {
	if hint := b.lockedHint(); hint != "" && errors.Is(err, device.ErrOutOfMemory) {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}

// lockedHint says what to set where pinning failed and the limit of locked memory may be why. It is no reason to refuse: driver 580 pins
// beyond that limit, and charges the cgroup for it.
func (b *memoryBudget) lockedHint() string {
	locked, err := memory.Locked(os.DirFS("/"))
	if err != nil || locked == math.MaxInt64 || b.pinned <= locked {
		return ""
	}
	return fmt.Sprintf("%d MiB are to be pinned, and the process may lock %d MiB (RLIMIT_MEMLOCK): raise that with ulimit -l, LimitMEMLOCK= of a "+
		"systemd unit, or --ulimit memlock of a container", b.pinned>>20, locked>>20)
}

// finding says how the limit is divided, for `worker check`.
func (b *memoryBudget) finding() finding.Finding {
	f := finding.Finding{What: "memory"}
	if b.plan.Heap == 0 {
		f.Found = "no limit is known: payloads in hand are bounded by batches alone"
		return f
	}
	f.Found = fmt.Sprintf("%d MiB (%s): %d MiB for buffers, %d MiB for payloads in hand and their results, Go runtime below %d MiB",
		b.limit.Bytes>>20, b.limit.Source, (b.fixed.Heap+b.fixed.Beside)>>20, b.plan.Hand>>20, b.plan.Heap>>20)
	return f
}
