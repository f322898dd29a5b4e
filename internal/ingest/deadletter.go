package ingest

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Reason says why a payload was given up. The names stand in the Millrace-Reason header.
type Reason string

// The reasons.
const (
	TooLarge      Reason = "too_large"      // larger than a batch, or its result than the server takes
	MaxDeliver    Reason = "max_deliver"    // delivered too often
	OperatorError Reason = "operator_error" // an operator cannot take it
	DeviceFault   Reason = "device_fault"   // it breaks the device
)

// deadLetterAttempts is how often storing a dead letter is tried before the payload is given back instead.
const deadLetterAttempts = 5

// deadLetter stores the payload under the dead-letter subject and then terminates the input. It reports
// false, and has settled nothing, when the dead letter could not be stored.
func (w *Worker) deadLetter(ctx context.Context, d *delivery, why Reason, cause error) bool {
	if err := w.storeDeadLetter(ctx, d, why, cause); err != nil {
		w.log.Error("could not store a dead letter; its payload is delivered again (is there a stream for the "+
			"dead-letter subjects, and does it take messages of this size?)",
			"stream", d.stream, "sequence", d.sequence, "reason", why, "error", err)
		return false
	}
	if err := d.msg.TermWithReason(string(why)); err != nil {
		w.log.Warn("a payload was dead-lettered but could not be terminated; it comes again", "sequence", d.sequence, "error", err)
	}
	w.log.Warn("payload dead-lettered", "stream", d.stream, "sequence", d.sequence, "subject", d.msg.Subject(),
		"bytes", len(d.msg.Data()), "deliveries", d.deliveries, "reason", why, "cause", cause)
	w.observer.Settled(DeadLettered, len(d.msg.Data()), 0, time.Since(d.received), w.ackWait-time.Since(d.received))
	w.progressed()
	return true
}

func (w *Worker) storeDeadLetter(ctx context.Context, d *delivery, why Reason, cause error) error {
	whole := &nats.Msg{
		Subject: mapSubject(w.opts.DeadLetterPrefix, d.msg.Subject()),
		Header:  d.deadLetterHeader(why, cause, true),
		Data:    d.msg.Data(),
	}
	var err error
	for attempt := 1; attempt <= deadLetterAttempts; attempt++ {
		if _, err = w.publisher.wait(ctx, w.publisher.send(ctx, whole)); err == nil {
			return nil
		}
		if unstorable(err) && attempt == 1 {
			// The input's own headers and ours together may be more than the server takes. The
			// payload matters more than the headers.
			whole.Header = d.deadLetterHeader(why, cause, false)
			continue
		}
		if unstorable(err) || !sleep(ctx, retryWait(attempt)) {
			break
		}
	}
	return fmt.Errorf("dead letter on %q: %w", whole.Subject, err)
}

// deadLetterHeader says what happened to the payload. Its message id differs from the result's, or a result
// stored before an acknowledgement was lost would swallow the dead letter.
func (d *delivery) deadLetterHeader(why Reason, cause error, own bool) nats.Header {
	h := nats.Header{}
	if own {
		h = passThrough(d.msg.Headers(), 7)
	}
	d.source(h)
	h[HeaderReason] = []string{string(why)}
	h[HeaderError] = []string{headerText(cause)}
	h[HeaderDeliveries] = []string{strconv.Itoa(d.deliveries)}
	h[jetstream.MsgIDHeader] = []string{d.messageID() + ":" + string(why)}
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
