package results

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/retry"
)

// deadLetterAttempts is the number of attempts to publish a dead letter before the payload is given back for redelivery.
const deadLetterAttempts = 3

// PublishDeadLetter publishes the dead letter of a delivery and waits until the server has stored it. It logs any error that it
// returns. After success the caller must settle the delivery and call ReportDeadLetter.
func (w *Writer) PublishDeadLetter(ctx context.Context, d *inflight.Delivery, why Reason, cause error) error {
	err := w.publishDeadLetter(ctx, d, why, cause)
	if err != nil {
		w.logUnstoredDeadLetter(d, why, err)
	}
	return err
}

func (w *Writer) logUnstoredDeadLetter(d *inflight.Delivery, why Reason, err error) {
	w.s.Log.Error("could not store a dead letter; its payload is delivered again (is there a stream for the "+
		"dead-letter subjects, and does it take messages of this size?)",
		"stream", d.Stream, "sequence", d.Sequence, "reason", why, "error", err)
}

// ReportDeadLetter logs that the dead letter of a delivery is stored, and notifies the observer.
func (w *Writer) ReportDeadLetter(d *inflight.Delivery, why Reason, cause error) {
	w.s.Log.Warn("payload dead-lettered", "stream", d.Stream, "sequence", d.Sequence, "subject", d.Subject,
		"bytes", len(d.Msg.Data()), "deliveries", d.NumDelivered, "reason", why, "cause", cause)
	w.Report(inflight.DeadLettered, d)
}

// publishDeadLetter publishes the dead letter of a delivery.
func (w *Writer) publishDeadLetter(ctx context.Context, d *inflight.Delivery, why Reason, cause error) error {
	return w.publishLetter(ctx, w.newDeadLetter(d, why, cause))
}

// publishLetter publishes a dead letter in the first form that the server accepts.
func (w *Writer) publishLetter(ctx context.Context, letter *deadLetter) error {
	for attempt := 1; ; attempt++ {
		stored, until, err := w.clearance.clearDeadLetter(ctx, letter.d)
		if stored || err == nil && letter.record != noRecord && w.clearance.isStored(letter.id) {
			w.s.Log.Info("a result or a dead letter of an input is stored already", "sequence", letter.d.Sequence)
			return nil
		}
		if err == nil {
			timely, cancel := context.WithDeadline(ctx, until)
			err = letter.publish(timely)
			cancel()
		}
		switch {
		case err == nil:
			letter.logOmission()
			return nil
		case publisher.Unstorable(err) && letter.form < apart:
			letter.form++
			continue
		case publisher.Unstorable(err), errors.Is(err, jetstream.ErrNoStreamResponse), attempt >= deadLetterAttempts,
			!retry.Sleep(ctx, retry.Delay(attempt)):
			w.maxPayload.learn(letter.d, err)
			return fmt.Errorf("dead letter on %q: %w", letter.subject, err)
		}
	}
}
