package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/publisher"
)

// Provision creates the input stream, the result stream, a stream for dead letters (unless some stream already stores
// them), and the consumer. It creates only what is missing, and doesn't change what exists.
func Provision(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	if err := checkInput(ctx, js, l); err != nil {
		return err // before creating anything that would be useless
	}
	if err := createInputStream(ctx, js, l, log); err != nil {
		return err
	}
	dead, err := streamOf(ctx, js, l.DeadLetterPrefix, l.Subjects)
	if err != nil {
		return err
	}
	if err := createStream(ctx, js, log, resultSettings(js, l)); err != nil {
		return err
	}
	if dead == "" {
		if err := createStream(ctx, js, log, deadLetterSettings(l)); err != nil {
			return err
		}
	}
	if l.Exclusive {
		return createPartitionConsumers(ctx, js, l, log)
	}
	return createConsumer(ctx, js, l, log)
}

func createInputStream(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	config := streamSettings(l, l.Stream, l.Subjects)
	if l.Exclusive {
		config.SubjectTransform = partitionTransform(l.Partitions)
	}
	return createStream(ctx, js, log, config)
}

// deadLetterSuffix, appended to the name of the result stream, is the name of the stream for dead letters (adr/0034).
const deadLetterSuffix = "_DEADLETTER"

func streamExists(ctx context.Context, js jetstream.JetStream, name string) (bool, error) {
	_, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up stream %q: %w", name, err)
	}
	return true, nil
}

// streamSettings returns the settings of a stream to create.
func streamSettings(l Topology, name string, subjects []string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: subjects, Storage: l.Storage,
		Description: provisioned,
	}
}

// maxDuplicateWindow bounds the duplicate window of a new result stream, because the server keeps every id in memory
// for that long.
const maxDuplicateWindow = time.Hour

// resultSettings returns the settings of the result stream. It accepts batches if the server supports them, and
// remembers an id for as long as its input may be redelivered.
func resultSettings(js jetstream.JetStream, l Topology) jetstream.StreamConfig {
	c := streamSettings(l, l.ResultStream, mappedSubjects(l.ResultPrefix))
	c.AllowBatchPublish = publisher.ServerBatches(js.Conn().ConnectedServerVersion())
	c.Duplicates = duplicateWindow(l)
	return c
}

// deadLetterSettings returns the settings of the stream for dead letters, which remembers ids for as long as the
// result stream does.
func deadLetterSettings(l Topology) jetstream.StreamConfig {
	c := streamSettings(l, l.ResultStream+deadLetterSuffix, mappedSubjects(l.DeadLetterPrefix))
	c.Duplicates = duplicateWindow(l)
	return c
}

// duplicateWindow returns the duplicate window of a new stream; 0 means the server's default.
func duplicateWindow(l Topology) time.Duration {
	if span := redeliverySpan(l.AckWait, l.MaxDeliver); span > defaultDuplicateWindow {
		return min(span, maxDuplicateWindow)
	}
	return 0
}

// defaultDuplicateWindow is the server's default for a stream.
const defaultDuplicateWindow = 2 * time.Minute

func createStream(ctx context.Context, js jetstream.JetStream, log *slog.Logger, c jetstream.StreamConfig) error {
	there, err := streamExists(ctx, js, c.Name)
	if err != nil || there {
		return err
	}
	if _, err = js.CreateStream(ctx, c); err != nil {
		return fmt.Errorf("create stream %q on %v: %w: if another stream has these subjects, name that stream or choose other subjects "+
			"(MILLRACE_STREAM, MILLRACE_SUBJECTS, MILLRACE_RESULT_STREAM, MILLRACE_RESULT_PREFIX, MILLRACE_DEADLETTER_PREFIX)", c.Name, c.Subjects, err)
	}
	log.Info("created stream", "stream", c.Name, "subjects", c.Subjects)
	return nil
}

func createConsumer(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	_, err := js.Consumer(ctx, l.Stream, l.Consumer)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf("look up consumer %q: %w", l.Consumer, err)
	}
	_, err = js.CreateConsumer(ctx, l.Stream, jetstream.ConsumerConfig{
		Durable: l.Consumer, FilterSubjects: l.Subjects,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: l.AckWait, MaxAckPending: l.MaxAckPending,
		// The worker counts deliveries itself, because a server that stops delivering can't send a dead letter.
		MaxDeliver:  -1,
		Description: provisioned,
	})
	if err != nil {
		return fmt.Errorf("create consumer %q on stream %q for %v: %w: check that the stream has these subjects "+
			"(MILLRACE_SUBJECTS) and which consumers it allows", l.Consumer, l.Stream, l.Subjects, err)
	}
	log.Info("created consumer", "consumer", l.Consumer, "stream", l.Stream, "ack_wait", l.AckWait.String())
	return nil
}
