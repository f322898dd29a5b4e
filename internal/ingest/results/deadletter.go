package results

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/topology"
)

// Reason says why a payload was given up. The names stand in the Millrace-Reason header.
type Reason string

// The reasons.
const (
	TooLarge      Reason = "too_large"      // it exceeds a batch, or its result exceeds what the server takes
	MaxDeliver    Reason = "max_deliver"    // it was delivered too often
	OperatorError Reason = "operator_error" // an operator cannot take it
	DeviceFault   Reason = "device_fault"   // it breaks the device
)

// ErrExceedsBatch returns the error for a payload of so many bytes if a batch takes at most most.
func ErrExceedsBatch(bytes, most int) error {
	return fmt.Errorf("payload of %d bytes, and a batch takes %d: raise MILLRACE_BATCH_BYTES", bytes, most)
}

// deadLetterAttempts is how often publishing a dead letter is tried before the payload is given back, to be redelivered.
const deadLetterAttempts = 3

// PublishDeadLetter publishes the dead letter of a delivery and waits until the server has stored it. It logs the error that it returns.
// After success the caller settles the delivery and calls ReportDeadLetter.
func (w *Writer) PublishDeadLetter(ctx context.Context, d *inflight.Delivery, why Reason, cause error) error {
	err := w.publishDeadLetter(ctx, d, why, cause)
	if err != nil {
		w.s.Log.Error("could not store a dead letter; its payload is delivered again (is there a stream for the "+
			"dead-letter subjects, and does it take messages of this size?)",
			"stream", d.Stream, "sequence", d.Sequence, "reason", why, "error", err)
	}
	return err
}

// ReportDeadLetter logs that the dead letter of a delivery is stored, and tells the observer.
func (w *Writer) ReportDeadLetter(d *inflight.Delivery, why Reason, cause error) {
	w.s.Log.Warn("payload dead-lettered", "stream", d.Stream, "sequence", d.Sequence, "subject", d.Subject,
		"bytes", len(d.Msg.Data()), "deliveries", d.NumDelivered, "reason", why, "cause", cause)
	w.Report(inflight.DeadLettered, d)
}

// publishDeadLetter publishes the dead letter in the first form that the server takes.
func (w *Writer) publishDeadLetter(ctx context.Context, d *inflight.Delivery, why Reason, cause error) error {
	letter := &deadLetter{w: w, d: d, why: why, cause: cause, subject: shortSubject(topology.MapSubject(w.s.DeadLetterPrefix, d.Subject))}
	for attempt := 1; ; attempt++ {
		stored, until, err := w.clearance.clearDeadLetter(ctx, d)
		if stored {
			w.s.Log.Info("a result or a dead letter of an input is stored already", "sequence", d.Sequence)
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
			w.learnMaxPayload(d, err)
			return fmt.Errorf("dead letter on %q: %w", letter.subject, err)
		}
	}
}

// DeadLetterHeader returns the headers of a dead letter, with the input's own if own is set. The message id differs from the result's.
// Otherwise the stream would drop the dead letter if it has a result whose acknowledgement was lost.
func DeadLetterHeader(d *inflight.Delivery, why Reason, cause error, own bool) nats.Header {
	h := nats.Header{}
	if own {
		h = passThrough(d.Msg.Headers(), 8)
		if lines := Withheld(d.Msg.Headers()); len(lines) > 0 {
			h[HeaderInput] = lines
		}
	}
	addSource(h, d)
	h[HeaderReason] = []string{string(why)}
	h[HeaderError] = []string{headerText(cause)}
	h[HeaderDeliveries] = []string{strconv.Itoa(d.NumDelivered)}
	h[jetstream.MsgIDHeader] = []string{MessageID(d) + ":" + string(why)}
	return h
}

// headerText makes an error fit one header line of bounded length.
func headerText(err error) string {
	const most = 512
	text := []byte(err.Error())
	for i, c := range text {
		if c == '\n' || c == '\r' {
			text[i] = ' '
		}
	}
	return string(text[:min(len(text), most)])
}

// shortSubject cuts a subject to publisher.MaxSubject. The input's whole subject is in the headers.
func shortSubject(subject string) string {
	if len(subject) <= publisher.MaxSubject {
		return subject
	}
	return strings.TrimRight(subject[:publisher.MaxSubject], ".")
}
