package ingest

import (
	"context"

	"millrace/internal/ingest/pull"
)

// acknowledgeAll acknowledges an input and all before it, where the consumer takes it so.
func (w *Worker) acknowledgeAll(ctx context.Context, msg pull.Receipt) error {
	if !w.opts.ConfirmAcks || ctx.Err() != nil {
		return msg.Ack()
	}
	return w.confirmAll(ctx, msg)
}

// confirmAll is acknowledgeAll that returns when the server has taken it in.
func (w *Worker) confirmAll(ctx context.Context, msg pull.Receipt) error {
	ctx, cancel := context.WithTimeout(ctx, pull.ConfirmTimeout)
	defer cancel()
	return msg.DoubleAck(ctx)
}
