package ingest

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
)

// deadLetterWindow is how many dead letters may be on their way at once. Each has a goroutine, so that payloads nobody can process do not
// hold up the others.
const deadLetterWindow = 64

// GiveUp takes over a delivery, with what it holds of the memory, that is not to be processed: it becomes a dead letter, or is given back
// to come again later if that fails. It waits only for room, and gives the delivery back at once when ctx ends.
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

// DeadLetter stores the payload under the dead-letter subject and then terminates the input. It reports
// false, and has settled nothing, if the dead letter could not be stored.
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
func (a *acknowledger) Undeliverable(ctx context.Context, b *inflight.Batch, i int, cause error) error {
	b.Settle(i)
	a.GiveUp(ctx, b.HandOver(i), results.TooLarge, cause)
	return nil
}
