package inflight

import "iter"

// Outcome is what became of an input message.
type Outcome uint8

// The outcomes. The names are those of the metrics.
const (
	Published    Outcome = iota // its result is stored and it is acknowledged
	DeadLettered                // it is stored under the dead-letter subject and terminated
	Nacked                      // it was given back to be delivered again
	Duplicate                   // as Published, but the server said that it had its result already; of a batch it does not say it
	NumOutcomes
)

func (o Outcome) String() string {
	return [...]string{"published", "deadlettered", "nacked", "duplicate"}[o]
}

// Payload is one input of a batch, as it came.
type Payload struct {
	Stream   string
	Sequence uint64
	Header   map[string][]string // not to be kept or changed; nil where there is none
}

// BatchObserver is told of batches and of what they were made of. Calls come from several goroutines and must not block.
type BatchObserver interface {
	// BatchEnded: the device is done with a batch, and what could be published and settled of it is. Record and payloads
	// are not to be kept.
	BatchEnded(r *Record, payloads iter.Seq[Payload])
}

// Memory is what a worker's deliveries in flight take of what they may, in bytes.
type Memory struct {
	Limit, Used int64
	Waits       uint64 // times that the next payload had to wait for some
}
