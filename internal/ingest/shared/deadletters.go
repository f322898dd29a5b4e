package shared

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
)

// GiveUp implements quarantine.Deliveries. It takes over a delivery and its memory, and publishes the dead letter in a
// separate goroutine. If the publish fails, it gives the delivery back. GiveUp waits only while deadLetterWindow dead
// letters are in flight. If ctx ends during that wait, it gives the delivery back.
func (a *acknowledger) GiveUp(ctx context.Context, d inflight.Delivery, why results.Reason, cause error) {
	select {
	case a.deadLetters <- struct{}{}:
	case <-ctx.Done():
		a.nak(&d, 0)
		a.pool.Release(&d)
		return
	}
	a.publishing.Go(func() {
		defer func() { <-a.deadLetters }()
		defer a.pool.Release(&d)
		if !a.DeadLetter(ctx, &d, why, cause) {
			a.nak(&d, d.NakDelay())
		}
	})
}

// DeadLetter implements quarantine.Deliveries. It publishes the dead letter and then terminates the input.
func (a *acknowledger) DeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) bool {
	if a.results.PublishDeadLetter(ctx, d, why, cause) != nil {
		return false
	}
	a.ledger.settle(d)
	if err := d.Msg.TermWithReason(string(why)); err != nil {
		a.log.Warn("a payload was dead-lettered but could not be terminated; it comes again", "sequence", d.Sequence, "error", err)
	}
	a.results.ReportDeadLetter(d, why, cause)
	return true
}

// Undeliverable implements results.Sink.
func (a *acknowledger) Undeliverable(ctx context.Context, b *inflight.Batch, i int, why results.Reason, cause error) error {
	b.Settle(i)
	a.GiveUp(ctx, b.HandOver(i), why, cause)
	return nil
}

// CollectRefused implements results.Sink.
func (a *acknowledger) CollectRefused(ctx context.Context, b *inflight.Batch, refused []int) error {
	for _, i := range refused {
		if err := a.Undeliverable(ctx, b, i, results.OperatorError, b.Refusal(i)); err != nil {
			return err
		}
	}
	return nil
}

// Incomplete implements results.Sink.
func (a *acknowledger) Incomplete(b *inflight.Batch, i int, cause error) error {
	b.Settle(i)
	a.GiveBack(&b.Items[i], cause)
	return nil
}
