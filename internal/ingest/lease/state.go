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
	"millrace/internal/ingest/topology"
	"millrace/internal/wildcard"
)

// leaseOptions contains the identity and the limits of a lease.
type leaseOptions struct {
	id         string // this worker's ID in annotations
	stream     string
	subjects   []string // the consumer's filters, without the partition
	maxBytes   int      // maximum payload size of a batch, in bytes
	maxBatches int      // maximum number of batches in flight
}

// leaseState is the state that the reader, the submitter, the settler and the batches of a lease share.
type leaseState struct {
	leaseOptions
	server leaseServer
	host   leaseHost
	log    *slog.Logger

	// begun reports whether the server has pinned this worker and the consumer is annotated. Only the reader and end
	// use it.
	begun  bool
	out    *inflight.Queue      // deliveries from the reader to the submitter
	order  chan *inflight.Batch // submitted batches from the submitter to the settler, in order
	failed chan error           // receives the error that ends the lease; has space for one

	// commits is nil before begin, and if the result stream accepts no commit markers.
	commits leaseCommits
	stored  *storedInputs
	acks    *acknowledgements
	notes   *annotations
	caution *precaution
}

func newLeaseState(o leaseOptions, server leaseServer, host leaseHost, log *slog.Logger) *leaseState {
	l := &leaseState{
		leaseOptions: o, server: server, host: host, log: log,
		out: inflight.NewQueue(inflight.QueueMax), order: make(chan *inflight.Batch, o.maxBatches), failed: make(chan error, 1),
		stored: &storedInputs{server: server, stream: o.stream, subjects: o.subjects}, acks: newAcknowledgements(host, log),
	}
	l.notes = newAnnotations(o.id, server, l.acks)
	l.caution = &precaution{id: o.id, acks: l.acks, notes: l.notes, log: log}
	return l
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
	subject = topology.PartitionSubject(subject)
	return slices.ContainsFunc(s.subjects, func(f string) bool { return wildcard.Covers(f, subject) })
}

// delivery returns raw as a delivery with the consumer sequence number.
func (s *storedInputs) delivery(raw *jetstream.RawStreamMsg, number uint64) inflight.Delivery {
	msg := s.server.message(raw, number)
	return inflight.Delivery{
		Msg: msg, HeaderBytes: msg.HeaderBytes(),
		Stream: s.stream, Subject: topology.PartitionSubject(raw.Subject), Sequence: raw.Sequence, ConsumerSequence: number,
		NumDelivered: 1, Stored: raw.Time, Received: time.Now(), // First stays false, because the time of the first delivery is unknown
	}
}
