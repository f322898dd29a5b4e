package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
	"millrace/internal/ingest"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// The names of the streams and of what is in them. They are no names that a worker has by default, so that a server
// which others use can be measured with. A number follows the stream's: a server that removes a stream is not done
// when it says so, and one made anew under the same name can find messages of the old one.
const (
	streamPrefix = "MILLRACE_BENCH_"
	anchorStream = streamPrefix + "ANCHOR"

	inPrefix      = "millrace-bench-in"
	outPrefix     = "millrace-bench-out"
	deadPrefix    = "millrace-bench-dead"
	anchorSubject = "millrace-bench-anchor"
	consumer      = "millrace-bench"
)

// partitions is how many parts the input stream has for workers that take it in parts: a consumer each.
const partitions = 8

const (
	// ackWait is more than any payload waits.
	ackWait = 5 * time.Minute

	// maxAckPending is more than any worker holds.
	maxAckPending = 1 << 20
)

// subject is that of input i. There is one for each partition, and the server puts each into another: it tells partitions
// apart by a hash whose last bits are those of the last digit.
func subject(i int) string { return inPrefix + "." + strconv.Itoa(i%partitions) }

// published is the subject of an input as it was published: a stream in partitions puts their number before it.
func published(stored string) string {
	if strings.HasPrefix(stored, inPrefix) {
		return stored
	}
	_, subject, _ := strings.Cut(stored, ".")
	return subject
}

// mapped is the subject of the result for an input's.
func mapped(subject string) string { return outPrefix + strings.TrimPrefix(subject, inPrefix) }

// layout is that of a Millrace worker between the two streams.
func (s *site) topology(exclusive bool) topology.Topology {
	return topology.Topology{
		Stream: s.in, Subjects: []string{inPrefix + ".>"}, Consumer: consumer,
		ResultStream: s.out, ResultPrefix: outPrefix, DeadLetterPrefix: deadPrefix,
		Exclusive: exclusive, Partitions: partitions, MaxDeliver: 10,
		Storage: s.storage, AckWait: ackWait, MaxAckPending: maxAckPending,
	}
}

// options are those of a Millrace worker between the two streams.
func (s *site) options(ops []operator.Operator, exclusive bool) ingest.Options {
	return ingest.Options{
		Topology:  s.topology(exclusive),
		Operators: ops, Format: operator.JSON, Linger: linger, DrainTimeout: time.Minute,
		Logger: quiet, Observer: &tally{},
	}
}

// linger is how long the oldest payload of a batch waits for more: the worker's default.
const linger = 2 * time.Millisecond

// renew makes both streams and the consumers anew, the input stream of that shape.
func (s *site) renew(ctx context.Context, of shape) error {
	if err := s.remove(ctx, anchorStream); err != nil {
		return err
	}
	s.rounds++
	s.in, s.out = fmt.Sprintf("%sIN_%d", streamPrefix, s.rounds), fmt.Sprintf("%sOUT_%d", streamPrefix, s.rounds)
	results := []string{outPrefix, outPrefix + ".>", deadPrefix, deadPrefix + ".>"}
	if err := s.create(ctx, s.out, results); err != nil {
		return err
	}
	if err := topology.Provision(ctx, s.js, s.topology(of != whole), quiet); err != nil {
		return err
	}
	if of == parted {
		return s.unpin(ctx)
	}
	return nil
}

// create makes a stream.
func (s *site) create(ctx context.Context, name string, subjects []string) error {
	_, err := s.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: subjects, Storage: s.storage, AllowBatchPublish: s.batches,
	})
	if err != nil {
		return fmt.Errorf("create stream %s: %w: the user must be allowed to make streams, with room for a round's payloads (at most %d MiB; fewer with --seconds)", name, err, mostBytes>>20)
	}
	return nil
}

// anchor makes the stream that stays while others come and go: when the last of an account's is removed the server
// removes their folder too, and a stream made just then has none.
func (s *site) anchor(ctx context.Context) error {
	return s.create(ctx, anchorStream, []string{anchorSubject})
}

// remove deletes every stream of this program's, with its consumers, but those to keep.
func (s *site) remove(ctx context.Context, keep ...string) error {
	var ours []string
	there := s.js.StreamNames(ctx)
	for name := range there.Name() {
		if strings.HasPrefix(name, streamPrefix) && !slices.Contains(keep, name) {
			ours = append(ours, name)
		}
	}
	if err := there.Err(); err != nil {
		return fmt.Errorf("list the server's streams: %w: the server must have JetStream", err)
	}
	for _, name := range ours {
		if err := s.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete stream %s: %w", name, err)
		}
	}
	return nil
}

// takesBatches is nil where the result stream stores batches, and otherwise says why not.
func (s *site) takesBatches(ctx context.Context) error {
	stream, err := s.js.Stream(ctx, s.out)
	if err != nil {
		return err
	}
	if !stream.CachedInfo().Config.AllowBatchPublish {
		return bench.Unable("the server stores no batches: it takes version 2.14 or later")
	}
	return nil
}

// pause waits for d, or returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
