package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"
)

// Provision creates the input stream, the result stream (which takes the dead letters too, unless another
// stream already does) and the consumer, each only where it is missing. What is there is left as it is.
func Provision(ctx context.Context, js jetstream.JetStream, o Options) error {
	if err := createStream(ctx, js, o.Logger, o.Stream, o.Subjects); err != nil {
		return err
	}
	results := mappedSubjects(o.ResultPrefix)
	dead, err := streamOf(ctx, js, o.DeadLetterPrefix)
	if err != nil {
		return err
	}
	if dead == "" {
		results = append(results, mappedSubjects(o.DeadLetterPrefix)...)
	}
	if err := createStream(ctx, js, o.Logger, o.ResultStream, results); err != nil {
		return err
	}
	return createConsumer(ctx, js, o)
}

func createStream(ctx context.Context, js jetstream.JetStream, log *slog.Logger, name string, subjects []string) error {
	_, err := js.Stream(ctx, name)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("look up stream %q: %w", name, err)
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: subjects, Storage: jetstream.FileStorage,
		Description: "created by Millrace (MILLRACE_PROVISION)",
	})
	if err != nil {
		return fmt.Errorf("create stream %q on %v: %w", name, subjects, err)
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
		Description: "created by Millrace (MILLRACE_PROVISION)",
	})
	if err != nil {
		return fmt.Errorf("create consumer %q on stream %q for %v: %w", o.Consumer, o.Stream, o.Subjects, err)
	}
	o.Logger.Info("created consumer", "consumer", o.Consumer, "stream", o.Stream, "ack_wait", o.AckWait)
	return nil
}

// streamOf is the stream that stores what is published with that prefix; empty if there is none.
func streamOf(ctx context.Context, js jetstream.JetStream, prefix string) (string, error) {
	name, err := js.StreamNameBySubject(ctx, prefix+".>")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the stream for %q: %w", prefix+".>", err)
	}
	return name, nil
}
