package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"
)

// Provision creates the input stream, the result stream, a stream for dead letters (unless some stream already stores
// them), and the consumer. It creates only what is missing, and doesn't change what exists.
func Provision(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	if err := checkInput(ctx, js, l); err != nil {
		return err // before creating anything that would be useless
	}
	cr := &creator{js: js, log: log}
	if err := createInput(ctx, cr, l); err != nil {
		return err
	}
	if err := createOutputs(ctx, cr, l); err != nil {
		return err
	}
	if err := createConsumers(ctx, js, l, log); err != nil {
		return err
	}
	return finishInput(ctx, js, l, log)
}

// createOutputs creates the streams of results and dead letters.
func createOutputs(ctx context.Context, cr *creator, l Topology) error {
	dead, err := streamOf(ctx, cr.js, l.DeadLetterPrefix, l.Subjects)
	if err != nil {
		return err
	}
	if err := cr.create(ctx, l.Kept.Results, resultSettings(cr.js, l)); err != nil {
		return err
	}
	if dead != "" {
		return nil
	}
	return cr.create(ctx, l.Kept.DeadLetters, deadLetterSettings(l))
}

func createConsumers(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	if l.Exclusive {
		return createPartitionConsumers(ctx, js, l, log)
	}
	return createConsumer(ctx, js, l, log)
}

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

// consumerConfig returns the configuration of the consumer of shared delivery.
func consumerConfig(l Topology) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: l.Consumer, FilterSubjects: l.Subjects,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: l.AckWait, MaxAckPending: l.MaxAckPending,
		// The worker counts deliveries itself, because a server that stops delivering can't send a dead letter.
		MaxDeliver:  -1,
		Description: provisioned,
	}
}

func createConsumer(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	_, err := js.Consumer(ctx, l.Stream, l.Consumer)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf("look up consumer %q: %w", l.Consumer, err)
	}
	_, err = js.CreateConsumer(ctx, l.Stream, consumerConfig(l))
	if err != nil {
		return fmt.Errorf("create consumer %q on stream %q for %v: %w: check that the stream has these subjects "+
			"(MILLRACE_SUBJECTS) and which consumers it allows", l.Consumer, l.Stream, l.Subjects, err)
	}
	log.Info("created consumer", "consumer", l.Consumer, "stream", l.Stream, "ack_wait", l.AckWait.String())
	return nil
}
