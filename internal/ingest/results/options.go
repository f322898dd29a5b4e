// Package results publishes the results of batches, and the dead letters of payloads that are given up.
//
// A Writer encodes a batch, publishes its results until each is stored, and notifies the delivery mode through a Sink. The Sink
// acknowledges the inputs. Every message has an id, so the stream drops duplicates within its duplicate window. If a stored copy
// of a message may be older than that window, the Writer looks it up first (clearance.go, adr/0032). Exclusive
// delivery may store with commit markers instead, which Commits manages (adr/0046).
//
// Start reading at Writer.Store.
package results

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/filter"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lookup"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// Options configures a Writer.
type Options struct {
	topology.Topology

	Operators  []operator.Operator  // operators of the pipelines
	Format     operator.Format      // format of result bodies
	AnnotateAs string               // name of the member with the result, if Format is Annotated
	Filter     *filter.Filter       // which records are in results; nil means all
	Encoding   compression.Encoding // compression of result bodies
	AckWait    time.Duration        // the consumer's AckWait
	Timeout    time.Duration        // time limit for the server's answer to a publish; 0 means store.Timeout

	Log      *slog.Logger
	Observer Observer
	Progress *inflight.Progress // progress of the worker; stored results are progress

	// Stored is called each time the result of an input is stored, before Observer.Settled. Tests use it to identify inputs. It
	// may be nil.
	Stored func(sequence uint64, stored time.Time)
}

// Server holds the functions by which a Writer accesses the server. NewWriter uses real connections. A model of the server sets its own
// functions.
type Server struct {
	First, Again   store.Publisher                // First is for first attempts, and Again for further attempts and for dead letters
	MaxPayload     func() int64                   // the server's max_payload, as far as the client knows it
	Closed         func() bool                    // whether a connection is closed permanently
	AwaitConnected func(ctx context.Context) bool // waits until a connection for results is up
	Reconnect      func(ctx context.Context) bool // connects again, and waits for the first connection

	// Refresh queries the result stream's settings if they may be outdated.
	Refresh func(ctx context.Context, doubt bool)

	// StoreApart stores a message that may have no id, and returns its stream sequence.
	StoreApart func(ctx context.Context, m *nats.Msg) (sequence uint64, err error)

	// Find looks up stored messages; see lookup.Results.
	Find func(ctx context.Context, inputs []lookup.Wanted) (found []lookup.Found, began time.Time, err error)
}

// Observer receives the outcomes of deliveries. Calls come from several goroutines and must not block.
type Observer interface {
	// Settled is called with the outcome of each delivery. in and out are the sizes of the payload and the result in bytes. out is
	// 0 without a result. latency is the time from receipt to publication, and headroom is the remaining AckWait.
	Settled(o inflight.Outcome, in, out int, latency, headroom time.Duration)

	// Frame is called when the result of a message that was split into records or decompressed is stored. It is not called for a
	// message that becomes a dead letter as a whole, or for a redelivered message whose result was already stored.
	Frame(inflight.FrameStats)

	// OperatorFault is called for each failure that a configured operator causes.
	OperatorFault(inflight.OperatorFault)

	// DeadLettered is called for each stored dead letter of a record, and for each dead letter of a message when the input is
	// settled.
	DeadLettered(inflight.DeadLetter)

	// PayloadLeftOut is called for each dead letter that is stored without its payload because of the message size limit.
	PayloadLeftOut()

	// StateLogged is called after a commit with the bytes that it has stored in the log of a state.
	StateLogged(bytes int)
}

// Sink receives the outcomes of a batch's deliveries. Each delivery mode implements it.
type Sink interface {
	// Stored is called with deliveries whose results are stored. They may be acknowledged.
	Stored(ctx context.Context, stored []*inflight.Delivery)

	// DeadLettered is called with a delivery whose dead letter is stored. The input may be acknowledged.
	DeadLettered(d *inflight.Delivery, why Reason)

	// Incomplete is called if the i-th delivery of b can't be finished now. Either a batch failed to compute some records of its
	// frame, or dead letters could not be stored. Incomplete settles the delivery in b, or returns an error. Store then fails.
	Incomplete(b *inflight.Batch, i int, cause error) error
}

// commitBytes returns the maximum number of bytes that a commit adds to the headers of a result. It is the same for all kinds of
// commits, so that every worker cuts a frame's result into the same parts.
func commitBytes(t topology.Topology) int {
	if !t.Exclusive || t.ExactlyOnce == topology.Off {
		return 0
	}
	return store.HeaderBytes
}

// Warnings about results and dead letters that are not stored yet.
const (
	notStored        = "results could not be stored and are published again; nothing is acknowledged meanwhile"
	lettersNotStored = "the stream of dead letters stores nothing, so the partition waits and none of its inputs is acknowledged: if it is full, make room or raise its limits"
)
