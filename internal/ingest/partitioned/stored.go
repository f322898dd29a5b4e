package partitioned

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
	"millrace/internal/wildcard"
)

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
