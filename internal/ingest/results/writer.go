package results

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/retry"
	"millrace/internal/operator"
)

// Writer stores results and dead letters. Its methods may be called by several goroutines.
type Writer struct {
	s         Settings
	conns     natsconn.Connections // all of the worker's
	js        jetstream.JetStream
	clearance *clearance
	first     publisher.Publisher // of what is published for the first time
	again     publisher.Publisher // of what may have been published before, and of dead letters
	operators string              // the header's value

	maxPayload maxPayload // of the server, as far as the client knows it
}

// NewWriter makes a writer over connections that stay the caller's. It asks the result stream how it takes results, and logs that.
func NewWriter(ctx context.Context, conns natsconn.Connections, s Settings) (*Writer, error) {
	js, err := jetstream.New(conns[0])
	if err != nil {
		return nil, err
	}
	w := &Writer{s: s, conns: conns, js: js, operators: OperatorNames(s.Operators), maxPayload: maxPayload{conns: conns, log: s.Log}}
	if w.clearance, err = newClearance(ctx, conns[0], js, s); err != nil {
		return nil, err
	}
	if err := w.openPublisher(ctx); err != nil {
		return nil, err
	}
	if err := w.clearance.probe(ctx); err != nil {
		s.Log.Warn("could not look at results; that is tried again when an input comes again", "stream", s.ResultStream, "error", err)
	}
	return w, nil
}

// OperatorNames is the value of HeaderOperators.
func OperatorNames(operators []operator.Operator) string {
	names := make([]string, len(operators))
	for i, op := range operators {
		names[i] = op.String()
	}
	return strings.Join(names, ",")
}

// openPublisher asks the result stream how it takes results.
func (w *Writer) openPublisher(ctx context.Context) error {
	singles, err := publisher.NewWindowed(w.s.Timeout, w.conns.ForResults(w.s.Exclusive)...)
	if err != nil {
		return err
	}
	first, found, err := publisher.Open(ctx, singles, publisher.Options{
		Stream: w.s.ResultStream, Changed: w.logCapability, Trouble: w.logFailedBatch, Read: w.clearance.results.saw,
	})
	if err != nil {
		return err
	}
	w.first, w.again = first, singles
	w.logCapability(found)
	return nil
}

// logCapability logs how results are stored from now on.
func (w *Writer) logCapability(c publisher.Capability) {
	w.s.Log.Info("results are stored with "+c.Found, "stream", w.s.ResultStream, "advice", c.Advice,
		"looked_up_when_older_than", w.clearance.results.publishFor(time.Now()).String())
}

// logFailedBatch logs that a batch of results is published again.
func (w *Writer) logFailedBatch(err error) {
	w.s.Log.Warn("a batch of results was not confirmed; they are published again one by one", "stream", w.s.ResultStream, "error", err)
}

// publishAttempt publishes the messages of one attempt and appends the server's answer on each to answers. What was
// published before goes one by one: the server drops a message that it knows without saying so among many, and
// where the stream has replicas, a message that it knows may still be on its way to them.
func (w *Writer) publishAttempt(ctx context.Context, attempt int, msgs []*nats.Msg, answers []publisher.Answer) []publisher.Answer {
	if attempt > 1 {
		return w.again.Publish(ctx, msgs, answers)
	}
	return w.first.Publish(ctx, msgs, answers)
}

// awaitRetry waits before the n-th retry, from 1: for a while, and without a connection until there is one. It returns false if ctx ends
// first.
func (w *Writer) awaitRetry(ctx context.Context, n int) bool {
	return retry.Sleep(ctx, retry.Delay(n)) && w.conns.ForResults(w.s.Exclusive).AwaitConnected(ctx)
}

// Upgrading reports whether results were stored lately under the ids of an earlier version. Then every input that comes again is looked up.
func (w *Writer) Upgrading() bool { return w.clearance.upgrading.Load() }

// HighestInput returns the highest sequence of an input that has a result or a dead letter stored since that time; 0 if they cannot be
// looked up.
func (w *Writer) HighestInput(ctx context.Context, since time.Time) (uint64, error) {
	return w.clearance.highestInput(ctx, since)
}

// stored tells tests of an input whose result is stored.
func (w *Writer) stored(d *inflight.Delivery) {
	if w.s.Stored != nil {
		w.s.Stored(d.Sequence, d.Stored)
	}
}

// AlreadyStored reports a delivery whose result was stored before.
func (w *Writer) AlreadyStored(d *inflight.Delivery) {
	w.stored(d)
	w.Report(inflight.Duplicate, d)
}

// Report tells the observer how a delivery without a new result ended.
func (w *Writer) Report(o inflight.Outcome, d *inflight.Delivery) {
	since := time.Since(d.Received)
	w.s.Observer.Settled(o, len(d.Msg.Data()), 0, since, w.s.AckWait-since)
}
