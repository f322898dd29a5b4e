package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/store"
)

// Provision creates the input stream, the result stream (which takes the dead letters too, unless another
// stream already does), a stream for the dead letters where the result stream is there already without them,
// and the consumer, each only where it is missing. What is there is left as it is.
func Provision(ctx context.Context, js jetstream.JetStream, o Options) error {
	if err := createInputStream(ctx, js, o); err != nil {
		return err
	}
	deadLetters := mappedSubjects(o.DeadLetterPrefix)
	dead, err := streamOf(ctx, js, o.DeadLetterPrefix, o.Subjects)
	if err != nil {
		return err
	}
	there, err := streamExists(ctx, js, o.ResultStream)
	switch {
	case err != nil:
		return err
	case !there && dead == "":
		err = createStream(ctx, js, o.Logger, resultSettings(js, o, append(mappedSubjects(o.ResultPrefix), deadLetters...)))
	case !there:
		err = createStream(ctx, js, o.Logger, resultSettings(js, o, mappedSubjects(o.ResultPrefix)))
	case dead == "":
		err = createStream(ctx, js, o.Logger, streamSettings(o, o.ResultStream+deadLetterSuffix, deadLetters))
	}
	if err != nil {
		return err
	}
	if o.Exclusive {
		return createPartitionConsumers(ctx, js, o)
	}
	return createConsumer(ctx, js, o)
}

func createInputStream(ctx context.Context, js jetstream.JetStream, o Options) error {
	config := streamSettings(o, o.Stream, o.Subjects)
	if o.Exclusive {
		config.SubjectTransform = partitionTransform(o.Partitions)
	}
	return createStream(ctx, js, o.Logger, config)
}

// deadLetterSuffix names the stream for dead letters after the result stream that does not take them.
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

// provisioned describes what is created here.
const provisioned = "created by Millrace (MILLRACE_PROVISION)"

// streamSettings are those of a stream that is created.
func streamSettings(o Options, name string, subjects []string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: subjects, Storage: o.Storage,
		Description: provisioned,
	}
}

// maxDuplicateWindow bounds the duplicate window of a result stream that is created: the server keeps every id for
// as long in memory.
const maxDuplicateWindow = time.Hour

// resultSettings are those of the result stream. It takes batches where the server can, and knows an id for as long
// as its input may come again.
func resultSettings(js jetstream.JetStream, o Options, subjects []string) jetstream.StreamConfig {
	c := streamSettings(o, o.ResultStream, subjects)
	c.AllowBatchPublish = store.ServerBatches(js.Conn().ConnectedServerVersion())
	if span := redeliverySpan(o.AckWait, o.MaxDeliver); span > defaultDuplicateWindow {
		c.Duplicates = min(span, maxDuplicateWindow)
	}
	return c
}

// defaultDuplicateWindow is what the server gives a stream for which none is named.
const defaultDuplicateWindow = 2 * time.Minute

// redeliverySpan is how long after its first delivery an input may be delivered for the last time that it is tried,
// if every worker that has it dies.
func redeliverySpan(ackWait time.Duration, deliveries int) time.Duration {
	return ackWait * time.Duration(deliveries)
}

func createStream(ctx context.Context, js jetstream.JetStream, log *slog.Logger, c jetstream.StreamConfig) error {
	there, err := streamExists(ctx, js, c.Name)
	if err != nil || there {
		return err
	}
	if _, err = js.CreateStream(ctx, c); err != nil {
		return fmt.Errorf("create stream %q on %v: %w: where another stream has these subjects, name it or choose others "+
			"(MILLRACE_STREAM, MILLRACE_SUBJECTS, MILLRACE_RESULT_STREAM, MILLRACE_RESULT_PREFIX, MILLRACE_DEADLETTER_PREFIX)", c.Name, c.Subjects, err)
	}
	log.Info("created stream", "stream", c.Name, "subjects", c.Subjects)
	return nil
}

func createConsumer(ctx context.Context, js jetstream.JetStream, o Options) error {
	_, err := js.Consumer(ctx, o.Stream, o.Consumer)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf("look up consumer %q: %w", o.Consumer, err)
	}
	_, err = js.CreateConsumer(ctx, o.Stream, jetstream.ConsumerConfig{
		Durable: o.Consumer, FilterSubjects: o.Subjects,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: o.AckWait, MaxAckPending: o.MaxAckPending,
		// The worker counts deliveries itself: a server that stops delivering cannot dead-letter.
		MaxDeliver:  -1,
		Description: provisioned,
	})
	if err != nil {
		return fmt.Errorf("create consumer %q on stream %q for %v: %w: check that the stream has these subjects "+
			"(MILLRACE_SUBJECTS) and what consumers it allows", o.Consumer, o.Stream, o.Subjects, err)
	}
	o.Logger.Info("created consumer", "consumer", o.Consumer, "stream", o.Stream, "ack_wait", o.AckWait.String())
	return nil
}

// streamOf is the stream that stores what is published with that prefix for inputs of these subjects; empty if
// there is none. Where streams store only some of it the error is a *partlyStored: no other stream can have
// the rest under subjects that overlap.
func streamOf(ctx context.Context, js jetstream.JetStream, prefix string, inputs []string) (string, error) {
	first, none := "", ""
	for _, wanted := range mappedFilters(prefix, inputs) {
		switch name, err := streamCovering(ctx, js, wanted); {
		case err != nil:
			return "", err
		case name == "":
			none = wanted
		case first == "":
			first = name
		}
	}
	if first != "" && none != "" {
		return "", &partlyStored{stream: first, subject: none}
	}
	return first, nil
}

// streamCovering is the stream that stores every subject that matches wanted.
func streamCovering(ctx context.Context, js jetstream.JetStream, wanted string) (string, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the listing when the stream is found
	defer cancel()
	partly := ""
	streams := js.ListStreams(ctx, jetstream.WithStreamListSubject(wanted))
	for info := range streams.Info() {
		for _, subject := range info.Config.Subjects {
			if covers(subject, wanted) {
				return info.Config.Name, nil
			}
		}
		partly = info.Config.Name
	}
	if err := streams.Err(); err != nil {
		return "", fmt.Errorf("find the stream for %q: %w", wanted, err)
	}
	if partly != "" {
		return "", &partlyStored{stream: partly, subject: wanted}
	}
	return "", nil
}

// partlyStored says that a stream stores some of what is needed and nothing stores the rest.
type partlyStored struct{ stream, subject string }

func (e *partlyStored) Error() string {
	return fmt.Sprintf("stream %q does not store all of %q, and no other stream does: add the subject to it, or choose another prefix",
		e.stream, e.subject)
}
