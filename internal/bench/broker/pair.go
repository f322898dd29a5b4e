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
	"millrace/internal/ingest/topology"
)

// The names of the streams, their subjects and their consumers. They differ from the worker's defaults, so that the
// bench can use a server that others use too. Each stream's name has a number, because the server still removes a
// stream after it has confirmed the deletion. A stream recreated with the same name can contain old messages.
const (
	streamPrefix = "MILLRACE_BENCH_"
	anchorStream = streamPrefix + "ANCHOR"

	inPrefix      = "millrace-bench-in"
	outPrefix     = "millrace-bench-out"
	deadPrefix    = "millrace-bench-dead"
	commitPrefix  = "millrace-bench-commits"
	anchorSubject = "millrace-bench-anchor"
	consumer      = "millrace-bench"
)

// partitions is the number of partitions of a partitioned input stream. Each has one consumer.
const partitions = 8

const (
	// ackWait is longer than any payload waits for its acknowledgement.
	ackWait = 5 * time.Minute

	// maxAckPending is larger than the number of messages that any worker holds.
	maxAckPending = 1 << 20
)

// subject returns the subject of input i. There is one subject for each partition, and the server maps each subject to
// a different partition: it hashes the subject, and the last bits of the hash depend only on the last digit.
func subject(i int) string { return inPrefix + "." + strconv.Itoa(i%partitions) }

// published returns the subject under which an input was published. A partitioned stream puts the partition's number in
// front of it.
func published(stored string) string {
	if strings.HasPrefix(stored, inPrefix) {
		return stored
	}
	_, subject, _ := strings.Cut(stored, ".")
	return subject
}

// mapped returns the subject of the result for the subject of an input.
func mapped(subject string) string { return outPrefix + strings.TrimPrefix(subject, inPrefix) }

// topology returns the topology of a Millrace worker between the two streams.
func (s *server) topology(exclusive bool) topology.Topology {
	return topology.Topology{
		Stream: s.in, Subjects: []string{inPrefix + ".>"}, Consumer: consumer, API: s.api,
		ResultStream: s.out, ResultPrefix: outPrefix, DeadLetterPrefix: deadPrefix,
		CommitPrefix: commitPrefix, ResultIDs: true, Kept: topology.Kept{Replicas: s.replicas},
		Exclusive: exclusive, Partitions: partitions, MaxDeliver: 10,
		Storage: s.storage, AckWait: ackWait, MaxAckPending: maxAckPending,
	}
}

// recreate recreates all streams and the consumers, with the given shape of the input stream. The streams of results and dead letters
// take commit markers, like the streams that the worker creates.
func (s *server) recreate(ctx context.Context, of shape) error {
	if err := s.remove(ctx, anchorStream); err != nil {
		return err
	}
	s.rounds++
	s.in, s.out = fmt.Sprintf("%sIN_%d", streamPrefix, s.rounds), fmt.Sprintf("%sOUT_%d", streamPrefix, s.rounds)
	for name, prefix := range map[string]string{s.out: outPrefix, s.dead(): deadPrefix} {
		if err := s.create(ctx, name, []string{prefix, prefix + ".>", topology.CommitSubjects(commitPrefix, name)}); err != nil {
			return err
		}
	}
	if of == bare {
		return s.create(ctx, s.in, s.topology(false).Subjects)
	}
	if err := topology.Provision(ctx, s.js, s.topology(of != whole), quiet); err != nil {
		return err
	}
	if of == partitioned {
		return s.unpin(ctx)
	}
	return nil
}

// dead returns the name of the stream of dead letters.
func (s *server) dead() string { return s.out + "_DEADLETTER" }

// create creates a stream.
func (s *server) create(ctx context.Context, name string, subjects []string) error {
	_, err := s.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: subjects, Storage: s.storage, Replicas: s.replicas, AllowBatchPublish: s.batches, AllowAtomicPublish: s.batches,
	})
	if err != nil {
		return fmt.Errorf("create stream %s: %w: the user needs permission to create streams, and space for the payloads of a round (at most %d MiB; a smaller --seconds needs less)", name, err, mostBytes>>20)
	}
	return nil
}

// anchor creates a stream that remains while the others are recreated. When an account's last stream is deleted, the
// server removes the folder of streams. A stream that is created at that moment has no folder.
func (s *server) anchor(ctx context.Context) error {
	return s.create(ctx, anchorStream, []string{anchorSubject})
}

// remove deletes all streams of this program except those in keep, with their consumers.
func (s *server) remove(ctx context.Context, keep ...string) error {
	var ours []string
	there := s.js.StreamNames(ctx)
	for name := range there.Name() {
		if strings.HasPrefix(name, streamPrefix) && !slices.Contains(keep, name) {
			ours = append(ours, name)
		}
	}
	if err := there.Err(); err != nil {
		return fmt.Errorf("list the server's streams: %w: enable JetStream on the server", err)
	}
	for _, name := range ours {
		if err := s.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete stream %s: %w", name, err)
		}
	}
	return nil
}

// acceptsBatches returns an error if the result stream can't store batches.
func (s *server) acceptsBatches(ctx context.Context) error {
	stream, err := s.js.Stream(ctx, s.out)
	if err != nil {
		return err
	}
	if !stream.CachedInfo().Config.AllowBatchPublish {
		return bench.Unable("the server can't store batches: use version 2.14 or later")
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
