package topology

import (
	"context"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/trim"
)

// Provision creates the missing streams and consumers. It creates a stream for dead letters unless some stream already
// stores dead letters. In existing streams, it changes only the metadata that registers consumers (see trim.Register).
func Provision(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	if err := checkInput(ctx, js, l); err != nil {
		return err // before Provision creates useless streams
	}
	cr := &creator{js: js, log: log}
	if err := cr.create(ctx, l.Kept.Inputs, inputSettings(l)); err != nil {
		return err
	}
	if err := createOutputs(ctx, cr, l); err != nil {
		return err
	}
	if err := trim.Register(ctx, js, l.Stream, l.Trim, l.Consumers()); err != nil {
		return err
	}
	return createConsumers(ctx, js, l, log)
}

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
	return cr.create(ctx, l.Kept.DeadLetters, deadLetterSettings(cr.js, l))
}

func createConsumers(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	if l.Exclusive {
		return createPartitionConsumers(ctx, js, l, log)
	}
	return createConsumer(ctx, js, l, log)
}
