package lease

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/store"
	"millrace/internal/streams"
	"millrace/internal/wildcard"
)

// leaseState is the state that the reader, the submitter and the settler of a lease share.
type leaseState struct {
	o      *Options
	id     string // this worker's ID in annotations
	server leaseServer
	device leaseDevice
	pipe   *streams.Pipeline // of device
	window *inflight.Window
	owner  leaseOwner
	store  resultStore // the worker's store; replaced by commits
	// openCommits takes over the partition's commit markers. It returns nil if the result stream accepts no commit
	// markers. It sets the partition's number and owner.
	openCommits func(context.Context, results.Partition) (leaseCommits, error)
	log         *slog.Logger

	// begun reports whether the server has pinned this worker and the consumer is annotated. Only the reader and end
	// use it.
	begun   bool
	commits leaseCommits         // nil before begin, and if the result stream accepts no commit markers
	out     *inflight.Queue      // deliveries from the reader to the submitter
	order   chan *inflight.Batch // submitted batches from the submitter to the settler, in order
	failed  chan error           // receives the error that ends the lease; has space for one
	stored  *storedInputs
	acks    *acknowledgements
	notes   *annotations
	caution *precaution
}

// leaseCommits stores a partition's results and dead letters exactly once. *results.Commits implements it.
type leaseCommits interface {
	resultStore

	// Found returns the position up to which earlier leases have stored all results. ok is false if the position isn't
	// known.
	Found() (p store.Position, ok bool)

	// Beyond returns the last input for which earlier leases may have stored a message.
	Beyond() uint64

	// Settled reports whether an earlier lease has stored the result or the dead letter of an input. The reader calls
	// it for every input, in stream order.
	Settled(ctx context.Context, d *inflight.Delivery) (bool, error)

	// Keep stores the last marker again before the stream removes it because of its age. The reader calls it at
	// intervals while no delivery arrives.
	Keep(ctx context.Context) error
}

// leaseDevice computes the batches of a lease. pipelineDevice implements it, and the model test simulates it.
type leaseDevice interface {
	quarantine.Device // computes separate batches, beside batches of other partitions

	// limit returns the maximum number of payloads in the next batch.
	limit() int

	// submit submits a batch. Once the batch has left the device, its group is completed.
	submit(b *leaseBatch)

	// Every batch on the device holds a lock. share takes a shared lock. isolate takes an exclusive lock, so its batch
	// runs alone. leave releases the lock.
	share() (leave func())
	isolate() (leave func())

	lost() error                                   // cause of the device's loss, or nil
	fault() (f inflight.OperatorFault, known bool) // operator fault that caused the loss of the device
}

// leaseBatch is a batch that is packed but not submitted.
type leaseBatch struct {
	group  *inflight.Batch
	batch  *streams.Batch
	why    streams.CloseReason
	window *inflight.Window
}

// leaseOwner receives the events of a lease. partitionOwner implements it.
type leaseOwner interface {
	began()
	ended()
	handing(busy bool)       // whether the reader is busy with a delivery
	pending(messages uint64) // the consumer's number of undelivered messages
}

// newLeaseState returns l with all remaining fields. l has the fields up to log.
func newLeaseState(l leaseState) *leaseState {
	l.out, l.order, l.failed = inflight.NewQueue(inflight.QueueMax), make(chan *inflight.Batch, l.o.Pool.Size()), make(chan error, 1)
	l.stored = &storedInputs{server: l.server, stream: l.o.Topology.Stream, subjects: l.o.Topology.Subjects}
	l.acks = newAcknowledgements(l.o.Pool, l.o.Confirm, l.log)
	l.notes = newAnnotations(l.id, l.server, l.acks)
	l.caution = &precaution{id: l.id, acks: l.acks, notes: l.notes, log: l.log}
	return &l
}

// fail ends the lease with err. It ignores all errors after the first.
func (l *leaseState) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
}

// isTooLarge reports whether no batch has space for a payload of the given bytes.
func (l *leaseState) isTooLarge(bytes int) bool {
	return bytes > l.o.Pool.Split.MaxRecord && !l.o.Pool.Splits()
}

// storedInputs reads a partition's inputs from the stream.
type storedInputs struct {
	server   leaseServer
	stream   string
	subjects []string // the consumer's filters, without the partition
}

// between returns the partition's inputs between two stream sequences, both exclusive, in order. The iteration ends
// when it yields an error.
func (s *storedInputs) between(ctx context.Context, from, to uint64) iter.Seq2[*jetstream.RawStreamMsg, error] {
	return func(yield func(*jetstream.RawStreamMsg, error) bool) {
		reader := s.server.reader()
		for from+1 < to {
			raw, err := reader.read(ctx, from+1)
			switch {
			case err != nil:
				yield(nil, fmt.Errorf("read delivered inputs from the stream: %w", err))
				return
			case raw == nil:
				if err := reader.proveEnd(ctx, from+1); err != nil {
					yield(nil, fmt.Errorf("read delivered inputs from the stream: %w", err))
				}
				return
			case raw.Sequence >= to:
				return
			}
			from = raw.Sequence
			if s.matches(raw.Subject) && !yield(raw, nil) {
				return
			}
		}
	}
}

// matches reports whether the consumer delivers messages with the given subject.
func (s *storedInputs) matches(subject string) bool {
	subject = inflight.PartitionSubject(subject)
	return slices.ContainsFunc(s.subjects, func(f string) bool { return wildcard.Covers(f, subject) })
}

// delivery returns raw as a delivery with the consumer sequence number.
func (s *storedInputs) delivery(raw *jetstream.RawStreamMsg, number uint64) inflight.Delivery {
	msg := s.server.message(raw, number)
	return inflight.Delivery{
		Msg: msg, HeaderBytes: msg.HeaderBytes(),
		Stream: s.stream, Subject: inflight.PartitionSubject(raw.Subject), Sequence: raw.Sequence, ConsumerSequence: number,
		NumDelivered: 1, Stored: raw.Time, Received: time.Now(), // First stays false, because the time of the first delivery is unknown
	}
}
