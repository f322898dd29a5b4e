package results

import (
	"context"
	"log/slog"
	"time"

	"millrace/internal/compression"
	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// Settings configures a Writer.
type Settings struct {
	topology.Topology

	Operators []operator.Operator  // the operators that the pipelines run
	Format    operator.Format      // format of result bodies
	Encoding  compression.Encoding // how result bodies are compressed
	AckWait   time.Duration        // the consumer's AckWait
	Timeout   time.Duration        // time after which an answer of the server counts as lost; 0: publisher.Timeout

	Log      *slog.Logger
	Observer Observer
	Progress func() // called when a result is stored

	// Stored is called each time the result of an input is stored, before Observer.Settled. It is for tests, which need to
	// identify inputs; nil for none.
	Stored func(sequence uint64, stored time.Time)
}

// Observer receives the outcomes of deliveries. Calls come from several goroutines and must not block.
type Observer interface {
	// Settled is called for the outcome of each delivery. in and out are the bytes of the payload and of the result (0 if there
	// is none), latency is the time from receipt to publication, and headroom is the remaining AckWait.
	Settled(o inflight.Outcome, in, out int, latency, headroom time.Duration)

	// Frame is called once for each message that was split into records or decompressed, when its result is stored. It is not
	// called for a redelivered message whose result the server reports as stored before, nor if the whole message is a dead letter.
	Frame(inflight.FrameStats)

	// OperatorFault is called for each failure that a configured operator is to blame for.
	OperatorFault(inflight.OperatorFault)

	// DeadLettered is called for each dead letter that is stored: of a message, when its input is settled, or of a record of a frame.
	DeadLettered(inflight.DeadLetter)

	// PayloadLeftOut is called for each dead letter that is stored without its payload, because no message may be that large.
	PayloadLeftOut()
}

// Sink receives the outcomes of a batch's deliveries. Each delivery mode has one.
type Sink interface {
	// Stored is called with deliveries that may be acknowledged, because their results are stored.
	Stored(ctx context.Context, stored []*inflight.Delivery)

	// Undeliverable is called for the i-th delivery of a batch if it has no result, or one that can never be stored. It becomes a
	// dead letter. An error ends Settle.
	Undeliverable(ctx context.Context, b *inflight.Batch, i int, why Reason, cause error) error

	// CollectRefused is called for the deliveries of a batch that have no result because of an operator, all of them at once: see
	// inflight.Batch.Refusal. Each becomes a dead letter. An error ends Settle.
	CollectRefused(ctx context.Context, b *inflight.Batch, refused []int) error

	// Incomplete is called for the i-th delivery of a batch if it is a frame, and another batch could not compute its part. An
	// error ends Settle.
	Incomplete(b *inflight.Batch, i int, cause error) error
}

// commitBytes returns the most bytes that a commit adds to the headers of a result. It is the same for every way of storing, so that every worker
// cuts the result of a frame into the same parts.
func commitBytes(t topology.Topology) int {
	if !t.Exclusive || t.ExactlyOnce == topology.Off {
		return 0
	}
	return commit.HeaderBytes
}

// notStored is the warning about results that wait, and lettersNotStored that about the stream of dead letters.
const (
	notStored        = "results could not be stored and are published again; nothing is acknowledged meanwhile"
	lettersNotStored = "the stream of dead letters stores nothing, so the partition waits and none of its inputs is acknowledged: if it is full, make room or raise its limits"
)
