package partitioned

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
)

// errGap ends a lease that has missed deliveries and doesn't read them from the stream, because it can't or there are too many.
var errGap = errors.New("there are deliveries that went elsewhere or got lost")

// storedInputs reads a partition's inputs from the stream.
type storedInputs struct {
	server   leaseServer
	stream   string
	subjects []string // the consumer's filters, without the partition
}

// missing reads the partition's inputs between two stream sequences, both exclusive. It fails with errGap if there are more than
// most.
func (s *storedInputs) missing(ctx context.Context, from, to uint64, most int) (found []*jetstream.RawStreamMsg, err error) {
	for from+1 < to {
		raw, err := s.server.read(ctx, from+1)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read what was delivered and never came: %w", err)
		case raw == nil || raw.Sequence >= to:
			return found, nil
		case len(found) == most:
			return nil, errGap
		}
		from = raw.Sequence
		if s.matches(raw.Subject) {
			found = append(found, raw)
		}
	}
	return found, nil
}

// matches reports whether the consumer delivers messages with that subject.
func (s *storedInputs) matches(subject string) bool {
	subject = topology.PartitionSubject(subject)
	return slices.ContainsFunc(s.subjects, func(f string) bool { return topology.Covers(f, subject) })
}

// delivery returns a message of the stream as the consumer's number-th delivery.
func (s *storedInputs) delivery(raw *jetstream.RawStreamMsg, number uint64) inflight.Delivery {
	msg := s.server.message(raw, number)
	return inflight.Delivery{
		Msg: msg, HeaderBytes: msg.HeaderBytes(),
		Stream: s.stream, Subject: topology.PartitionSubject(raw.Subject), Sequence: raw.Sequence, ConsumerSequence: number,
		NumDelivered: 1, Stored: raw.Time, Received: time.Now(), // First stays false: the time of the first delivery is unknown
	}
}
