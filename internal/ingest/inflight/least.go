package inflight

import (
	"errors"
	"fmt"

	"millrace/internal/ingest/unpack"
)

// minPayloads is the number of empty payloads that must fit into the memory.
const minPayloads = 1024

// ErrMemory means that Options.Memory is too small for the worker.
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
func (o Options) Check(pipelines int, batch int64) error {
	frames := o.frames(pipelines, batch)
	minimum := o.Fixed + frames + o.minimum(batch)
	if o.Memory == 0 || o.Memory >= minimum {
		return nil
	}
	what, lower := "", "MILLRACE_LANES, "
	if frames > 0 {
		what, lower = fmt.Sprintf(" and %d MiB for frames", ceilMiB(frames)), "MILLRACE_FRAME_BYTES, MILLRACE_FRAME_RECORDS, MILLRACE_LANES, "
	}
	return &MemoryError{
		Found: fmt.Sprintf("%d MiB are left for payloads and results, and these settings need %d MiB, %d MiB of them for what is pulled ahead%s",
			o.Memory>>20, ceilMiB(minimum), ceilMiB(o.Fixed), what),
		Advice: fmt.Sprintf("raise the container's memory limit or MILLRACE_MEMORY_LIMIT by %d MiB, or lower %s"+
			"MILLRACE_BATCH_BYTES, MILLRACE_BATCH_PAYLOADS, MILLRACE_PARTITIONS or MILLRACE_NATS_CONNECTIONS", ceilMiB(3*(minimum-o.Memory)), lower),
	}
}

// frames returns the memory in bytes for one frame of the largest size per pipeline.
func (o Options) frames(pipelines int, batch int64) int64 {
	messages := o.messages(batch)
	return int64(pipelines) * messages.MaxBytes(o.Largest)
}

// messages returns the settings for unpacking messages into records of at most batch bytes.
func (o Options) messages(batch int64) unpack.Options {
	o.Split.MaxRecord = int(batch)
	return unpack.Options{Split: o.Split, Decompress: o.Decompress, Results: o.Costs.results}
}

// minimum returns the minimum memory for deliveries in bytes: two payloads of the largest size, and minPayloads empty
// ones. batch is the capacity of a batch in bytes.
func (o Options) minimum(batch int64) int64 {
	largest := min(o.Largest, batch)
	minimum := 2*(largest+largest/8+o.Costs.perByte*largest) + minPayloads*o.Costs.perPayload()
	return minimum * keepShare / (keepShare - 1)
}

func ceilMiB(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }
