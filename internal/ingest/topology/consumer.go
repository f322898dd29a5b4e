package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"
)

// Consumers returns the names of all consumers of the input stream that the worker needs.
func (l Topology) Consumers() []string {
	if !l.Exclusive {
		return []string{l.Consumer}
	}
	names := make([]string, l.Partitions)
	for p := range names {
		names[p] = PartitionConsumer(l.Consumer, p)
	}
	return names
}

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
			"(MILLRACE_SUBJECTS) and which consumers it allows. A work queue allows one for each subject: give each deployment its own stream, or "+
			"one with retention by limits", l.Consumer, l.Stream, l.Subjects, err)
	}
	log.Info("created consumer", "consumer", l.Consumer, "stream", l.Stream, "ack_wait", l.AckWait.String())
	return nil
}
