package inflight

import (
	"iter"
	"time"

	"millrace/internal/record"
)

// Outcome is the final state of an input message in a worker.
type Outcome uint8

// The outcomes. Metrics use the same names.
const (
	Published    Outcome = iota // the result is stored and the input is acknowledged
	DeadLettered                // the input is stored under the dead-letter subject and terminated
	Nacked                      // the input was given back to be redelivered
	// Duplicate is like Published, but the server reported that it already had the result. For a batch of results, the
	// server reports no duplicates.
	Duplicate
	NumOutcomes
)

func (o Outcome) String() string {
	return [...]string{"published", "deadlettered", "nacked", "duplicate"}[o]
}

// FrameStats describes a message that was split into records or decompressed, and whose result is stored.
type FrameStats struct {
	Framed  bool                 // whether the message is a frame; otherwise it is a single compressed record
	Records [record.Statuses]int // number of records with each status
	Parts   int                  // number of messages of the result

	Compressed, Decompressed int // bytes of the body before and after decompression; 0 if the message was not compressed

	Decompressing, Splitting time.Duration // durations of decompressing the message and of splitting it into records
}

// DeadLetter is a dead letter that is stored.
type DeadLetter struct {
	Subject  string // of the input
	Sequence uint64 // of the input
	Record   int    // index of the record in its frame, or -1 if the whole message is given up
	Reason   string // value of the Millrace-Reason header
	Cause    error
}

// Payload is a received message with rows in a batch.
type Payload struct {
	Stream   string
	Sequence uint64
	Header   map[string][]string // must not be kept or changed; nil if there are no headers
}

// BatchObserver receives batches and their payloads. Calls come from several goroutines and must not block.
type BatchObserver interface {
	// BatchEnded is called after the device has finished a batch and every result that could be published is settled.
	// Implementations must not keep r or the payloads.
	BatchEnded(r *Record, payloads iter.Seq[Payload])
}

// Memory is the memory that a worker's deliveries in flight use, and its limit, in bytes.
type Memory struct {
	Limit, Used int64
	Waits       uint64 // number of times that a payload had to wait for memory
}
