package main

import (
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/ingest/finding"
	"millrace/internal/memory"
	"millrace/internal/streams"
)

// admit returns a function that adds a pipeline on a device of the given kind. The function returns an error if the limit is too low for
// all pipelines together.
func admit(m *memory.Process, kind string) func(streams.Footprint) error {
	return func(f streams.Footprint) error {
		if err := m.Admit(kind == "cuda", f.Host, f.Device+f.Scratch); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// applyMemory sets the memory limit of the Go runtime, unless the user has set it, and logs how the memory is divided.
func applyMemory(m *memory.Process, log *slog.Logger) {
	m.Apply()
	if m.GoRuntime > 0 {
		log.Info("memory", "limit", config.Size(m.Limit).String(), "from", m.Source, "buffers_mib", m.Buffers>>20, "states_mib", m.States>>20,
			"go_limit_mib", m.GoRuntime>>20, "in_hand_mib", m.Payloads>>20)
	}
}

// explainMemory adds advice to the error of a pipeline if the limit of locked memory may be the cause. A low limit alone doesn't prevent a
// start, because driver 580 pins more than the limit and charges the cgroup for it.
func explainMemory(m *memory.Process, err error) error {
	var locked unix.Rlimit
	if !errors.Is(err, device.ErrOutOfMemory) || unix.Getrlimit(unix.RLIMIT_MEMLOCK, &locked) != nil || uint64(m.Pinned) <= locked.Cur {
		return err
	}
	return fmt.Errorf("%w (the worker pins %d MiB, but the process may lock only %d MiB (RLIMIT_MEMLOCK): raise that limit with ulimit -l, "+
		"LimitMEMLOCK= in a systemd unit, or --ulimit memlock for a container)", err, m.Pinned>>20, locked.Cur>>20)
}

// memoryFinding describes the division of the limit, for `worker check`.
func memoryFinding(m *memory.Process) finding.Finding {
	f := finding.Finding{What: "memory"}
	if m.GoRuntime == 0 {
		f.Found = "no limit is known: only the batches limit the payloads that the worker holds"
		return f
	}
	states := ""
	if m.States > 0 {
		states = fmt.Sprintf("%d MiB for states, ", m.States>>20)
	}
	f.Found = fmt.Sprintf("%d MiB (%s): %d MiB for buffers, %s%d MiB for payloads in flight and their results, Go runtime below %d MiB",
		m.Limit>>20, m.Source, m.Buffers>>20, states, m.Payloads>>20, m.GoRuntime>>20)
	return f
}
