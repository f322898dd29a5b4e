package ingest

import (
	"iter"
	"time"

	"millrace/internal/streams"
)

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

// Observer is told what happens to messages. Calls come from several goroutines and must not block.
type Observer interface {
	// Settled: a message came to its end. in and out are the bytes of the payload and of the result body
	// (0 where there is none), latency is from received to published, headroom what was left of AckWait.
	Settled(o Outcome, in, out int, latency, headroom time.Duration)
	// Redelivered: a message came that had been delivered before.
	Redelivered()
	// Pending: what the consumer has yet to deliver, as of the latest message; with exclusive delivery the consumers of all
	// partitions together.
	Pending(messages uint64)
	// Stalled: so many consumers have messages and deliver none; called again and again, mostly with 0.
	Stalled(consumers int)
	// Restarted: this worker began a partition anew because something was wrong.
	Restarted()
	// Reconnected: a connection to NATS was lost and is back.
	Reconnected()
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
	BatchEnded(r *streams.Record, payloads iter.Seq[Payload])
}

// tell tells the observer of batches, if there is one, of a group's. Nothing is done or allocated otherwise.
func (w *Worker) tell(g *group, r *streams.Record) {
	if w.opts.Batches != nil {
		w.opts.Batches.BatchEnded(r, g.payloads)
	}
}

// payloads yields the inputs of the group's batch.
func (g *group) payloads(yield func(Payload) bool) {
	for i := range g.items {
		d := &g.items[i]
		if !yield(Payload{Stream: d.stream, Sequence: d.sequence, Header: d.msg.Headers()}) {
			return
		}
	}
}

// Memory is what a worker's deliveries in flight take of what they may, in bytes.
type Memory struct {
	Limit, Used int64
	Waits       uint64 // times that the next payload had to wait for some
}
