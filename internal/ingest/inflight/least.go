package inflight

import (
	"errors"
	"fmt"

	"millrace/internal/ingest/unpack"
)

// leastPayloads is the number of empty payloads that must fit into the memory.
const leastPayloads = 1024

// ErrMemory means that Settings.Memory is too small for the worker.
var ErrMemory = errors.New("ingest: too little memory")

// MemoryError is an ErrMemory with the missing amount and advice.
type MemoryError struct {
	Found  string // available and required memory
	Advice string // settings to raise or lower
}

func (e *MemoryError) Error() string { return ErrMemory.Error() + ": " + e.Found + ": " + e.Advice }

// Unwrap returns ErrMemory.
func (e *MemoryError) Unwrap() error { return ErrMemory }

// Check returns a *MemoryError if the memory is too little for the number of pipelines. batch is the capacity in bytes
// of the smallest batch among the pipelines.
func (s Settings) Check(pipelines int, batch int64) error {
	frames := s.frames(pipelines, batch)
	least := s.Fixed + frames + s.least(batch)
	if s.Memory == 0 || s.Memory >= least {
		return nil
	}
	what, lower := "", "MILLRACE_LANES, "
	if frames > 0 {
		what, lower = fmt.Sprintf(" and %d MiB for frames", ceilMiB(frames)), "MILLRACE_FRAME_BYTES, MILLRACE_FRAME_RECORDS, MILLRACE_LANES, "
	}
	return &MemoryError{
		Found: fmt.Sprintf("%d MiB are left for payloads and results, and these settings need %d MiB, %d MiB of them for what is pulled ahead%s",
			s.Memory>>20, ceilMiB(least), ceilMiB(s.Fixed), what),
		Advice: fmt.Sprintf("raise the container's memory limit or MILLRACE_MEMORY_LIMIT by %d MiB, or lower %s"+
			"MILLRACE_BATCH_BYTES, MILLRACE_BATCH_PAYLOADS, MILLRACE_PARTITIONS or MILLRACE_NATS_CONNECTIONS", ceilMiB(3*(least-s.Memory)), lower),
	}
}

// frames returns the memory in bytes for one frame of the largest size per pipeline.
func (s Settings) frames(pipelines int, batch int64) int64 {
	messages := s.messages(batch)
	return int64(pipelines) * messages.Most(s.Largest)
}

// messages returns the settings for unpacking messages into records of at most batch bytes.
func (s Settings) messages(batch int64) unpack.Settings {
	s.Split.MaxRecord = int(batch)
	return unpack.Settings{Split: s.Split, Decompress: s.Decompress, Results: s.Costs.results}
}

// least returns the minimum memory for deliveries in bytes: two payloads of the largest size, and leastPayloads empty
// ones. batch is the capacity of a batch in bytes.
func (s Settings) least(batch int64) int64 {
	largest := min(s.Largest, batch)
	least := 2*(largest+largest/8+s.Costs.perByte*largest) + leastPayloads*s.Costs.perPayload()
	return least * keepShare / (keepShare - 1)
}

func ceilMiB(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }
