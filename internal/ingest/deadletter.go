package ingest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
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

const (
	// deadLetterAttempts is how often storing a dead letter is tried before the payload is given back: the
	// server's redelivery is the longer way to try again.
	deadLetterAttempts = 3

	// deadLetterWindow is how many dead letters may be on their way at once.
	deadLetterWindow = 64
)

// deadLetters are those being stored. Each has a goroutine, so that payloads nobody can process do not hold up
// the others.
type deadLetters struct {
	places chan struct{}
	stored sync.WaitGroup
}

func newDeadLetters() *deadLetters {
	return &deadLetters{places: make(chan struct{}, deadLetterWindow)}
}

// giveUp takes over a delivery, with what it holds of the budget, that is not to be processed: it becomes a dead letter, or is given back to come
// again later where that fails. It waits for nothing but room, and with the end of ctx gives back at once.
func (w *Worker) giveUp(ctx context.Context, d inflight.Delivery, why Reason, cause error) {
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
		if !w.deadLetter(ctx, &d, why, cause) {
			w.nak(&d, d.NakDelay())
		}
	})
}

// deadLetter stores the payload under the dead-letter subject and then terminates the input. It reports
// false, and has settled nothing, when the dead letter could not be stored.
func (w *Worker) deadLetter(ctx context.Context, d *inflight.Delivery, why Reason, cause error) bool {
	if err := w.storeDeadLetter(ctx, d, why, cause); err != nil {
		w.sayNotBuried(d, why, err)
		return false
	}
	w.ledger.settle(d)
	if err := d.Msg.TermWithReason(string(why)); err != nil {
		w.log.Warn("a payload was dead-lettered but could not be terminated; it comes again", "sequence", d.Sequence, "error", err)
	}
	w.sayBuried(d, why, cause)
	return true
}

// sayNotBuried and sayBuried say what became of a dead letter.
func (w *Worker) sayNotBuried(d *inflight.Delivery, why Reason, err error) {
	w.log.Error("could not store a dead letter; its payload is delivered again (is there a stream for the "+
		"dead-letter subjects, and does it take messages of this size?)",
		"stream", d.Stream, "sequence", d.Sequence, "reason", why, "error", err)
}

func (w *Worker) sayBuried(d *inflight.Delivery, why Reason, cause error) {
	w.log.Warn("payload dead-lettered", "stream", d.Stream, "sequence", d.Sequence, "subject", d.Subject,
		"bytes", len(d.Msg.Data()), "deliveries", d.NumDelivered, "reason", why, "cause", cause)
	w.observer.Settled(inflight.DeadLettered, len(d.Msg.Data()), 0, time.Since(d.Received), w.ackWait-time.Since(d.Received))
}

// storeDeadLetter returns once the server has stored the dead letter, in the first form that it takes.
func (w *Worker) storeDeadLetter(ctx context.Context, d *inflight.Delivery, why Reason, cause error) error {
	letter := &letter{w: w, d: d, why: why, cause: cause, subject: shortSubject(topology.MapSubject(w.opts.DeadLetterPrefix, d.Subject))}
	for attempt := 1; ; attempt++ {
		stored, until, err := w.clearance.buried(ctx, d)
		if stored {
			w.log.Info("a result or a dead letter of an input is stored already", "sequence", d.Sequence)
			return nil
		}
		if err == nil {
			timely, cancel := context.WithDeadline(ctx, until)
			err = letter.store(timely)
			cancel()
		}
		switch {
		case err == nil:
			letter.logOmission()
			return nil
		case store.Unstorable(err) && letter.form < apart:
			letter.form++
			continue
		case store.Unstorable(err), errors.Is(err, jetstream.ErrNoStreamResponse), attempt >= deadLetterAttempts,
			!retry.Sleep(ctx, retry.Delay(attempt)):
			w.outgrown(d, err)
			return fmt.Errorf("dead letter on %q: %w", letter.subject, err)
		}
	}
}

// deadLetterHeader says what happened to the payload. Its message id differs from the result's, or a result
// stored before an acknowledgement was lost would swallow the dead letter.
func deadLetterHeader(d *inflight.Delivery, why Reason, cause error, own bool) nats.Header {
	h := nats.Header{}
	if own {
		h = passThrough(d.Msg.Headers(), 8)
		if lines := withheld(d.Msg.Headers()); len(lines) > 0 {
			h[HeaderInput] = lines
		}
	}
	addSource(h, d)
	h[HeaderReason] = []string{string(why)}
	h[HeaderError] = []string{headerText(cause)}
	h[HeaderDeliveries] = []string{strconv.Itoa(d.NumDelivered)}
	h[jetstream.MsgIDHeader] = []string{messageID(d) + ":" + string(why)}
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

// shortSubject cuts a subject to what a publisher sends. The whole of the input's is in the headers.
func shortSubject(subject string) string {
	if len(subject) <= store.MaxSubject {
		return subject
	}
	return strings.TrimRight(subject[:store.MaxSubject], ".")
}
