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
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/store"
	"millrace/internal/operator"
)

// deadLetterAttempts is the number of attempts to publish a dead letter. After them, the payload is given back for redelivery.
const deadLetterAttempts = 3

// lettersAtOnce is the maximum number of dead letters that are published together. It bounds the memory for their headers. Their bodies take no extra
// memory, except for rows of Arrow streams. copiedAtOnce bounds the bytes of these rows, unless a single body has more.
const (
	lettersAtOnce = 512
	copiedAtOnce  = 4 << 20
)

// PublishDeadLetter publishes the dead letter of d, which is in no batch, and waits until the server has stored it. It logs any
// error that it returns. After success the caller must settle d and call ReportDeadLetter.
func (w *Writer) PublishDeadLetter(ctx context.Context, d *inflight.Delivery, why Reason, cause error) error {
	l := w.newDeadLetter(d, why, cause)
	_, err := w.publishLetters(ctx, []*deadLetter{l}, new(partials))
	if err != nil {
		w.logUnstoredDeadLetter(l, err)
	}
	return err
}

func (w *Writer) logUnstoredDeadLetter(l *deadLetter, err error) {
	w.o.Log.Error("could not store a dead letter; the server redelivers its payload (is there a stream for the "+
		"dead-letter subjects, does it have room, and does it take messages of this size?)",
		"stream", l.d.Stream, "sequence", l.d.Sequence, "reason", l.why, "error", err)
}

// ReportDeadLetter logs that the dead letter of d is stored, and notifies the observer.
func (w *Writer) ReportDeadLetter(d *inflight.Delivery, why Reason, cause error) {
	w.o.Log.Warn("payload dead-lettered", withOperator(cause, "stream", d.Stream, "sequence", d.Sequence, "subject", d.Subject,
		"bytes", len(d.Msg.Data()), "deliveries", d.NumDelivered, "reason", why, "cause", cause)...)
	w.reportFault(why, cause)
	w.observeLetter(d, noRecord, why, cause)
	w.Report(inflight.DeadLettered, d)
}

func (w *Writer) observeLetter(d *inflight.Delivery, record int, why Reason, cause error) {
	w.o.Observer.DeadLettered(inflight.DeadLetter{Subject: d.Subject, Sequence: d.Sequence, Record: record, Reason: string(why), Cause: cause})
}

// reportFault notifies the observer of an operator that failed on a batch with only one payload. Other faults are reported where
// they are detected.
func (w *Writer) reportFault(why Reason, cause error) {
	if name, fault := operator.FaultOfPayload(cause); why == OperatorError && name != "" {
		w.o.Observer.OperatorFault(inflight.OperatorFault{Operator: name, Fault: fault, At: time.Now()})
	}
}

// withOperator appends the operator that caused err, if it is known, to attributes of a log line.
func withOperator(err error, attributes ...any) []any {
	if name := operator.ToBlame(err); name != "" {
		attributes = append(attributes, "operator", name)
	}
	return attributes
}

func (w *Writer) newDeadLetter(d *inflight.Delivery, why Reason, cause error) *deadLetter {
	return &deadLetter{
		w: w, d: d, why: why, cause: cause, subject: shortSubject(store.MapSubject(w.o.DeadLetterPrefix, d.Subject)),
		id: DeadLetterID(d, why), body: d.Msg.Data(), record: noRecord,
	}
}

func (w *Writer) newRecordLetter(d *inflight.Delivery, i int) *deadLetter {
	l := w.newDeadLetter(d, Reason(d.Frame.Table.Status(i).String()), recordError(d.Frame, i))
	l.id, l.record = RecordID(d, i), i
	l.body, l.contentType = d.Frame.Letter(i)
	return l
}

// publishLetters publishes letters, each in the first form that the server accepts. Dead letters of one delivery must be adjacent.
// It skips dead letters of finished inputs, and those with ids in known. It modifies the slice letters. With an error, it returns
// the dead letters that aren't stored.
func (w *Writer) publishLetters(ctx context.Context, letters []*deadLetter, known *partials) (unstored []*deadLetter, err error) {
	for attempt := 1; ; attempt++ {
		left, until, err := w.clearLetters(ctx, letters, known)
		if err == nil {
			timely, cancel := context.WithDeadline(ctx, until)
			left, err = w.sendLetters(timely, left)
			cancel()
		}
		letters = left
		switch {
		case len(letters) == 0:
			return nil, nil
		case store.Unstorable(err), errors.Is(err, jetstream.ErrNoStreamResponse), attempt >= deadLetterAttempts,
			!retry.Sleep(ctx, retry.Delay(attempt)):
			return letters, fmt.Errorf("dead letter on %q: %w", letters[0].subject, err)
		}
	}
}

// clearLetters returns the dead letters that must still be published, and until, the deadline for publishing them. left shares the
// memory of letters. If clearLetters fails, left is letters, unchanged.
func (w *Writer) clearLetters(ctx context.Context, letters []*deadLetter, known *partials) (left []*deadLetter, until time.Time, err error) {
	var all []*inflight.Delivery
	for n, l := range letters {
		if n == 0 || l.d != letters[n-1].d {
			all = append(all, l.d)
		}
	}
	finished, until, err := w.clearance.clearDeadLetters(ctx, all, known)
	if err != nil {
		return letters, until, err
	}
	for d := range finished {
		w.o.Log.Info("a result or a dead letter of an input is stored already", "sequence", d.Sequence)
	}
	return slices.DeleteFunc(letters, func(l *deadLetter) bool { return finished[l.d] || known.has(l.id) }), until, nil
}

// sendLetters makes one attempt to publish each of letters, many at a time. It returns the dead letters that are not stored, and
// the last error. left shares the memory of letters.
func (w *Writer) sendLetters(ctx context.Context, letters []*deadLetter) (left []*deadLetter, last error) {
	var msgs []*nats.Msg
	for _, l := range letters {
		if l.form == whole {
			msgs = append(msgs, l.message(true, whole.omitted(), l.body))
		}
	}
	answers := w.server.Again.Publish(ctx, msgs, nil)
	left = letters[:0]
	for _, l := range letters {
		var err error
		if l.form == whole {
			if err, answers = answers[0].Err, answers[1:]; store.Unstorable(err) {
				l.form++
			}
		}
		if l.form > whole {
			err = l.publishAlone(ctx)
		}
		if err == nil {
			l.stored()
		} else {
			left, last = append(left, l), err
		}
	}
	return left, last
}
