package ingest

import (
	"context"
	"sync"
	"time"

	"millrace/internal/ingest/inflight"
)

const (
	// confirmAtOnce is how many acknowledgements may wait to be confirmed at once, of all batches together: one
	// after the other each would cost a round trip.
	confirmAtOnce = 1024

	// confirmPatience is how long the confirmations of a batch may take before those that did not come count as
	// lost.
	confirmPatience = 5 * time.Second
)

// ackAll acknowledges inputs whose results are stored. With Options.ConfirmAcks it returns when the server has
// confirmed each, or that is not to be waited for any longer: an acknowledgement that is lost only means that the
// input comes again, and that its result is dropped as a duplicate.
func (w *Worker) ackAll(ctx context.Context, stored []*inflight.Delivery) {
	if !w.opts.ConfirmAcks || ctx.Err() != nil { // a drain that is out of time waits for nothing
		for _, d := range stored {
			w.ack(d)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, confirmPatience)
	defer cancel()
	var waiting sync.WaitGroup
	for _, d := range stored {
		w.confirming <- struct{}{}
		waiting.Go(func() {
			defer func() { <-w.confirming }()
			w.ackConfirmed(ctx, d)
		})
	}
	waiting.Wait()
}

// ack sends an input's acknowledgement. Where that fails the input is delivered again and its result dropped as a
// duplicate.
func (w *Worker) ack(d *inflight.Delivery) {
	w.ledger.settle(d)
	if err := d.Msg.Ack(); err != nil {
		w.log.Warn("could not acknowledge an input; it is delivered again", "sequence", d.Sequence, "error", err)
	}
}

// ackConfirmed sends an input's acknowledgement and waits for the server to confirm it, or for the end of ctx. Where
// that has come it is sent all the same.
func (w *Worker) ackConfirmed(ctx context.Context, d *inflight.Delivery) {
	if ctx.Err() != nil {
		w.ack(d)
		return
	}
	w.ledger.settle(d)
	if err := d.Msg.DoubleAck(ctx); err != nil {
		w.log.Warn("an acknowledgement was not confirmed; if it is lost, its input is delivered again",
			"sequence", d.Sequence, "error", err)
	}
}

// acknowledgeAll acknowledges an input and all before it, where the consumer takes it so.
func (w *Worker) acknowledgeAll(ctx context.Context, msg inflight.Receipt) error {
	if !w.opts.ConfirmAcks || ctx.Err() != nil {
		return msg.Ack()
	}
	return w.confirmAll(ctx, msg)
}

// confirmAll is acknowledgeAll that returns when the server has taken it in.
func (w *Worker) confirmAll(ctx context.Context, msg inflight.Receipt) error {
	ctx, cancel := context.WithTimeout(ctx, confirmPatience)
	defer cancel()
	return msg.DoubleAck(ctx)
}
