package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"
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
		err = createStream(ctx, js, o.Logger, jetstream.StreamConfig{Name: o.ResultStream, Subjects: append(mappedSubjects(o.ResultPrefix), deadLetters...)})
	case !there:
		err = createStream(ctx, js, o.Logger, jetstream.StreamConfig{Name: o.ResultStream, Subjects: mappedSubjects(o.ResultPrefix)})
	case dead == "":
		err = createStream(ctx, js, o.Logger, jetstream.StreamConfig{Name: o.ResultStream + deadLetterSuffix, Subjects: deadLetters})
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
	config := jetstream.StreamConfig{Name: o.Stream, Subjects: o.Subjects}
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

// createStream creates a stream on file storage, unless there is one of that name.
func createStream(ctx context.Context, js jetstream.JetStream, log *slog.Logger, c jetstream.StreamConfig) error {
	name, subjects := c.Name, c.Subjects
	there, err := streamExists(ctx, js, name)
	if err != nil || there {
		return err
	}
	c.Storage, c.Description = jetstream.FileStorage, provisioned
	if _, err = js.CreateStream(ctx, c); err != nil {
		return fmt.Errorf("create stream %q on %v: %w: where another stream has these subjects, name it or choose others "+
			"(MILLRACE_STREAM, MILLRACE_SUBJECTS, MILLRACE_RESULT_STREAM, MILLRACE_RESULT_PREFIX, MILLRACE_DEADLETTER_PREFIX)", name, subjects, err)
	}
	log.Info("created stream", "stream", name, "subjects", subjects)
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
