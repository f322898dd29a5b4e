package lease

import (
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
)

// leaseServer contains all requests that a lease makes to the server. It does not abstract time, because tests run a
// lease in a testing/synctest bubble with its own clock.
type leaseServer interface {
	// Consumer requests the state of the consumer, or changes its metadata.
	quarantine.Consumer

	// reset makes the consumer deliver again from the given stream sequence. Consumer sequences then start at 1. reset
	// requires nats-server 2.14 or later. Only repair calls reset.
	reset(ctx context.Context, sequence uint64) error

	// redeliver makes the consumer redeliver an unacknowledged input. number is the consumer's last consumer sequence. The
	// server ignores the request if the input is already acknowledged.
	redeliver(ctx context.Context, sequence, number uint64) error

	// unpin removes the consumer's pin, so that the server can pin another client.
	unpin(ctx context.Context) error

	// reader returns a new reader of the partition's messages. Only one goroutine may use the reader.
	reader() leaseReader

	// message converts a message that was read from the stream to a delivery with the consumer sequence number.
	message(raw *jetstream.RawStreamMsg, number uint64) inflight.Incoming

	// receipt returns a token that acknowledges all inputs up to a stream sequence. number is the consumer sequence that
	// the acknowledgement names.
	receipt(sequence, number uint64) pull.AckToken

	// flush waits until the server has processed all messages that were sent over the connection for inputs.
	flush(ctx context.Context) error

	// pull starts a pull from the consumer.
	pull() (leasePull, error)

	// fetch requests up to n messages, waits up to wait for the first, and passes each to take. came is the number of messages that
	// arrived.
	fetch(n int, wait time.Duration, take func(inflight.Incoming)) (came int, err error)
}

// leaseReader reads messages of a partition from the stream.
type leaseReader interface {
	// read returns the first message at or after a stream sequence, or nil if there is none. It is fastest if each call
	// continues after the message that the last call returned.
	read(ctx context.Context, from uint64) (*jetstream.RawStreamMsg, error)

	// proveEnd returns an error if the stream has a message at or after a sequence. A nil result of read isn't proof,
	// because the server also finds no message if it can't read its files.
	proveEnd(ctx context.Context, from uint64) error
}

// leasePull is a pull from a consumer. With shared delivery, no client is pinned.
type leasePull interface {
	// next waits for a message. It returns pull.ErrIdle if none arrives within the request's idle time.
	next(ctx context.Context) (inflight.Incoming, error)

	// Pin returns the server's id for this client's pin, or an empty string if the client isn't pinned.
	Pin() string

	// Keep renews the pin of this client while it requests no messages.
	Keep() error

	// Drain makes the server stop sending messages. Afterwards, next returns the messages in transit and then an error. rest yields the
	// messages that the client has already received.
	Drain()
	rest(yield func(inflight.Incoming) bool)

	// leave ends the pull. turn is the lease's turn; see pull.Message.Turn. If messages of a later turn have arrived,
	// leave queries the pin of that turn.
	leave(ctx context.Context, turn uint64)
}

// leaseCommits stores a partition's results and dead letters exactly once. *results.Commits implements it.
type leaseCommits interface {
	resultStore

	// Found returns the position up to which earlier leases have stored all results. ok is false if the position isn't
	// known.
	Found() (p store.Position, ok bool)

	// Beyond returns the last input for which earlier leases may have stored a message.
	Beyond() uint64

	// Keep stores the last marker again before the stream removes it because of its age. The reader calls it at
	// intervals while no delivery arrives.
	Keep(ctx context.Context) error
}

// batchDevice computes the batches of a lease. pipelineDevice implements it, and the model test simulates it.
type batchDevice interface {
	quarantine.Device // computes separate batches, beside other batches

	// limit returns the maximum number of payloads in the next batch.
	limit() int

	// submit submits a batch. Once the batch has left the device, its groups are completed. If the device refuses the batch, submit completes
	// them at once.
	submit(p *inflight.Packed)

	// serve computes the deliveries of a queue, until stop returns.
	serve(q *inflight.Queue) (stop func())
}

// leaseDevice is a batchDevice that several partitions share.
type leaseDevice interface {
	batchDevice

	lost() error                                   // cause of the device's loss, or nil
	fault() (f inflight.OperatorFault, known bool) // operator fault that caused the loss of the device
}

// leaseOwner receives the events of a lease. partitionOwner implements it.
type leaseOwner interface {
	began()
	ended()
}

// resultStore stores results and dead letters. *results.Writer implements it.
type resultStore interface {
	// Known reports whether the result or the dead letter of an input is stored already, as far as that shows before Store. The reader
	// calls it for every input of a partition, in stream order.
	Known(ctx context.Context, d *inflight.Delivery) (bool, error)

	Store(ctx context.Context, b *inflight.Batch, s *results.Buffers, sink results.Sink) error
	PublishDeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) error
	ReportDeadLetter(d *inflight.Delivery, why results.Reason, cause error)
	AlreadyStored(d *inflight.Delivery)
	Report(o inflight.Outcome, d *inflight.Delivery)
}

// pinOf returns the pin of a partition's consumer, or an empty string if no client is pinned.
func pinOf(info *jetstream.ConsumerInfo) string {
	for _, g := range info.PriorityGroups {
		if g.Group == topology.PriorityGroup {
			return g.PinnedClientID
		}
	}
	return ""
}

// pinnedTo reports whether pin is the consumer's current pin.
func pinnedTo(info *jetstream.ConsumerInfo, pin string) bool {
	return pin != "" &&
		slices.ContainsFunc(info.PriorityGroups, func(g jetstream.PriorityGroupState) bool { return g.PinnedClientID == pin })
}
