package results

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
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
	w.s.Log.Warn("payload dead-lettered", withOperator(cause, "stream", d.Stream, "sequence", d.Sequence, "subject", d.Subject,
		"bytes", len(d.Msg.Data()), "deliveries", d.NumDelivered, "reason", why, "cause", cause)...)
	w.reportLaunchFault(why, cause)
	w.Report(inflight.DeadLettered, d)
}

// reportLaunchFault reports that the device refused an operator's launch on a payload, if that is why it is a dead letter. Other faults
// are reported where they are found.
func (w *Writer) reportLaunchFault(why Reason, cause error) {
	if name := operator.Failed(cause); why == OperatorError && name != "" {
		w.s.Observer.OperatorFault(inflight.OperatorFault{Operator: name, Fault: operator.FaultLaunch, At: time.Now()})
	}
}

// withOperator appends the operator that is to blame for err, if it is known, to the attributes of a log line.
func withOperator(err error, attributes ...any) []any {
	if name := operator.ToBlame(err); name != "" {
		attributes = append(attributes, "operator", name)
	}
	return attributes
}

// newDeadLetter returns the dead letter of a delivery's message.
func (w *Writer) newDeadLetter(d *inflight.Delivery, why Reason, cause error) *deadLetter {
	return &deadLetter{
		w: w, d: d, why: why, cause: cause, subject: shortSubject(topology.MapSubject(w.s.DeadLetterPrefix, d.Subject)),
		id: DeadLetterID(d, why), body: d.Msg.Data(), record: noRecord,
	}
}

// newRecordLetter returns the dead letter of a frame's i-th record.
func (w *Writer) newRecordLetter(d *inflight.Delivery, i int) *deadLetter {
	t := &d.Frame.Table
	l := w.newDeadLetter(d, Reason(t.Status(i).String()), &operator.RecordError{Operator: t.Operator(i), Text: t.Message(i)})
	l.id, l.body, l.record = RecordID(d, i), d.Frame.Record(i), i
	return l
}

// publishDeadLetter publishes the dead letter of a delivery.
func (w *Writer) publishDeadLetter(ctx context.Context, d *inflight.Delivery, why Reason, cause error) error {
	return w.publishLetters(ctx, []*deadLetter{w.newDeadLetter(d, why, cause)}, new(partials))
}

// publishLetters publishes dead letters of one delivery, each in the first form that the server accepts. It leaves out those in known. It
// uses the memory of letters.
func (w *Writer) publishLetters(ctx context.Context, letters []*deadLetter, known *partials) error {
	d := letters[0].d
	for attempt := 1; ; attempt++ {
		stored, until, err := w.clearance.clearDeadLetter(ctx, d, known)
		if stored {
			w.s.Log.Info("a result or a dead letter of an input is stored already", "sequence", d.Sequence)
			return nil
		}
		letters = slices.DeleteFunc(letters, func(l *deadLetter) bool { return (*known)[l.id] })
		if err == nil {
			timely, cancel := context.WithDeadline(ctx, until)
			letters, err = w.sendLetters(timely, letters)
			cancel()
		}
		switch {
		case len(letters) == 0:
			return nil
		case publisher.Unstorable(err), errors.Is(err, jetstream.ErrNoStreamResponse), attempt >= deadLetterAttempts,
			!retry.Sleep(ctx, retry.Delay(attempt)):
			w.size.learn(d, err)
			return fmt.Errorf("dead letter on %q: %w", letters[0].subject, err)
		}
	}
}

// sendLetters publishes dead letters once, many at a time. It returns the dead letters that are not stored, in the memory of letters, and why the
// last of them isn't.
func (w *Writer) sendLetters(ctx context.Context, letters []*deadLetter) (left []*deadLetter, last error) {
	var msgs []*nats.Msg
	for _, l := range letters {
		if l.form == whole {
			msgs = append(msgs, l.message(true, whole.omitted(), l.body))
		}
	}
	answers := w.again.Publish(ctx, msgs, nil)
	left = letters[:0]
	for _, l := range letters {
		var err error
		if l.form == whole {
			if err, answers = answers[0].Err, answers[1:]; publisher.Unstorable(err) {
				l.form++
			}
		}
		if l.form > whole {
			err = l.publishAlone(ctx)
		}
		if err == nil {
			l.logOmission()
		} else {
			left, last = append(left, l), err
		}
	}
	return left, last
}
