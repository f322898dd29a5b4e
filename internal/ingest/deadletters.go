package ingest

import (
	"context"
	"sync"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
)

// deadLetterWindow is how many dead letters may be on their way at once.
const deadLetterWindow = 64

// deadLetters are those being published. Each has a goroutine, so that payloads nobody can process do not hold up
// the others.
type deadLetters struct {
	places chan struct{}
	stored sync.WaitGroup
}

func newDeadLetters() *deadLetters {
	return &deadLetters{places: make(chan struct{}, deadLetterWindow)}
}

// GiveUp takes over a delivery, with what it holds of the memory, that is not to be processed: it becomes a dead letter, or is given back
// to come again later if that fails. It waits only for room, and gives the delivery back at once when ctx ends.
func (w *Worker) GiveUp(ctx context.Context, d inflight.Delivery, why results.Reason, cause error) {
	select {
	case w.dead.places <- struct{}{}:
	case <-ctx.Done():
		w.nak(&d, 0)
		w.pool.Release(&d)
		return
	}
	w.dead.stored.Go(func() {
		defer func() { <-w.dead.places }()
		defer w.pool.Release(&d)
		if !w.DeadLetter(ctx, &d, why, cause) {
			w.nak(&d, d.NakDelay())
		}
	})
}

// DeadLetter stores the payload under the dead-letter subject and then terminates the input. It reports
// false, and has settled nothing, if the dead letter could not be stored.
func (w *Worker) DeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) bool {
	if w.results.PublishDeadLetter(ctx, d, why, cause) != nil {
		return false
	}
	w.ledger.settle(d)
	if err := d.Msg.TermWithReason(string(why)); err != nil {
		w.log.Warn("a payload was dead-lettered but could not be terminated; it comes again", "sequence", d.Sequence, "error", err)
	}
	w.results.ReportDeadLetter(d, why, cause)
	return true
}
