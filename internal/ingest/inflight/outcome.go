package inflight

import "iter"

// Outcome is how the processing of an input message ended.
type Outcome uint8

// The outcomes. Metrics use the same names.
const (
	Published    Outcome = iota // the result is stored and the input is acknowledged
	DeadLettered                // the input is stored under the dead-letter subject and terminated
	Nacked                      // the input was given back to be redelivered
	Duplicate                   // as Published, but the server reported that it already had the result; it doesn't report that for a batch of results
	NumOutcomes
)

func (o Outcome) String() string {
	return [...]string{"published", "deadlettered", "nacked", "duplicate"}[o]
}

// Payload is one input of a batch, as received.
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
	Waits       uint64 // how often the next payload had to wait for memory
}
