package partitioned

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
)

// A lease reads deliveries that were lost on the way from the stream. Without them it could never acknowledge anything
// behind them.

// fillMost is how many inputs are read from the stream at once, each in one round trip. It is faster to have more of them
// delivered again.
const fillMost = 64

// fill takes what the partition has between the last input taken and sequence, and passes it on.
func (l *lease) fill(ctx, drainCtx context.Context, sequence uint64) error {
	l.mu.Lock()
	from, next := l.floor.Highest(), l.taken+1
	l.mu.Unlock()
	missing, err := l.missing(ctx, from, sequence)
	if err != nil {
		return err
	}
	sequences := make([]uint64, len(missing))
	for i, raw := range missing {
		sequences[i] = raw.Sequence
	}
	l.mu.Lock()
	l.floor.Fill(sequences, sequence)
	l.mu.Unlock()
	if len(missing) > 0 {
		l.log.Info("read inputs from the stream that were delivered and never came", "inputs", len(missing), "from", sequences[0])
	}
	for i, raw := range missing {
		d := l.stored(raw, next+uint64(i))
		if err := l.passOn(ctx, drainCtx, &d, false); err != nil {
			return err
		}
	}
	return nil
}

// fillTail takes what the consumer delivered last, by its own account, and never arrived.
func (l *lease) fillTail(ctx, drainCtx context.Context, info *jetstream.ConsumerInfo) error {
	l.mu.Lock()
	before := l.floor.Highest()
	l.mu.Unlock()
	if err := l.fill(ctx, drainCtx, info.Delivered.Stream+1); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = info.Delivered.Consumer
	if l.floor.Highest() == before {
		return errGap // they were no new ones
	}
	return nil
}

// missing reads the partition's inputs between two sequences of the stream, both not included.
func (l *lease) missing(ctx context.Context, from, to uint64) (found []*jetstream.RawStreamMsg, err error) {
	for from+1 < to {
		raw, err := l.server.read(ctx, from+1)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read what was delivered and never came: %w", err)
		case raw == nil || raw.Sequence >= to:
			return found, nil
		case len(found) == l.mostRead:
			return nil, errGap
		}
		from = raw.Sequence
		if l.filtered(raw.Subject) {
			found = append(found, raw)
		}
	}
	return found, nil
}

// filtered reports whether the consumer delivers messages with that subject of the partition.
func (l *lease) filtered(subject string) bool {
	subject = topology.PartitionSubject(subject)
	return slices.ContainsFunc(l.subjects, func(f string) bool { return topology.Covers(f, subject) })
}

// stored makes the consumer's number-th delivery of a message of the stream.
func (l *lease) stored(raw *jetstream.RawStreamMsg, number uint64) inflight.Delivery {
	msg := l.server.message(raw, number)
	return inflight.Delivery{
		Msg: msg, HeaderBytes: msg.HeaderBytes(),
		Stream: l.stream, Subject: topology.PartitionSubject(raw.Subject), Sequence: raw.Sequence, ConsumerSequence: number,
		NumDelivered: 1, Stored: raw.Time, Received: time.Now(), // not the first: nobody knows when that was
	}
}
