package lease

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
	"millrace/internal/wildcard"
)

// leaseState is the state that the reader, the submitter and the storer of a lease share.
type leaseState struct {
	inputs        // store is the worker's store, which commits replace
	id     string // this worker's ID in annotations
	device leaseDevice
	pipe   *streams.Pipeline // of device
	window *inflight.Window
	owner  leaseOwner
	// openCommits takes over the partition's commit markers. It returns nil if the result stream accepts no commit
	// markers. It sets the partition's number and owner.
	openCommits func(context.Context, results.Partition) (leaseCommits, error)

	// begun reports whether the server has pinned this worker and the consumer is annotated. Only the reader and end
	// use it.
	begun   bool
	commits leaseCommits    // nil before begin, and if the result stream accepts no commit markers
	out     *inflight.Queue // deliveries from the reader to the submitter
	order   *order          // groups from the packers to the storer
	failed  chan error      // receives the error that ends the lease; has space for one
	stored  *storedInputs
	acks    *upTo // the inputs' acknowledger
	notes   *annotations
	caution *precaution // the inputs' blame
}

// newLeaseState returns l with all remaining fields. l has the fields up to openCommits, and the options, the server, the store and the log
// of its inputs.
func newLeaseState(l leaseState) *leaseState {
	l.order, l.failed = newOrder(), make(chan error, 1)
	l.stored = &storedInputs{server: l.server, stream: l.o.Topology.Stream, subjects: l.o.Topology.Filters()}
	l.acks = newUpTo(&l.inputs)
	l.notes = newAnnotations(l.id, l.server, l.acks)
	l.caution = &precaution{id: l.id, acks: l.acks, notes: l.notes, log: l.log}
	l.out = l.o.Pool.NewQueue(&l, inflight.QueueMax, l.window)
	l.out.Share = l.o.Share
	l.ack, l.blame, l.queue = l.acks, l.caution, plainQueue{l.o, l.out}
	return &l
}

// fail ends the lease with err. It ignores all errors after the first.
func (l *leaseState) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
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

// errReset ends a lease whose consumer has restarted its consumer sequences. Acknowledgements of the lease would name
// wrong deliveries.
var errReset = errors.New("the consumer was reset, or restored from an older state")

// isOverAcknowledged reports whether the acknowledged consumer sequence is higher than the delivered one, or equal
// although inputs are unacknowledged. This happens if an administrator resets the consumer while an acknowledgement is
// in transit, or if a server crashed and lost deliveries. The server then ignores all other acknowledgements and
// redelivery requests, until the consumer has made more deliveries.
func isOverAcknowledged(info *jetstream.ConsumerInfo) bool {
	acknowledged, delivered := info.AckFloor.Consumer, info.Delivered.Consumer
	return acknowledged > delivered || acknowledged == delivered && info.NumAckPending > 0
}

// repair resets an over-acknowledged consumer to its floor, because nothing else makes the server accept acknowledgements. It always
// returns an error, which ends the lease.
func (l *leaseState) repair(ctx context.Context, info *jetstream.ConsumerInfo) error {
	l.log.Warn("the server has an acknowledgement with a number as high as the consumer's last delivery; resetting the consumer to its floor",
		"floor", info.AckFloor.Stream, "acknowledged", info.AckFloor.Consumer, "delivered", info.Delivered.Consumer)
	if err := l.server.reset(ctx, info.AckFloor.Stream+1); err != nil {
		return fmt.Errorf("reset the consumer to sequence %d, which the server needs to accept acknowledgements again (allow "+
			"the API request CONSUMER.RESET, or stop the workers and reset it): %w", info.AckFloor.Stream+1, err)
	}
	return errReset
}
