package results

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// Writer stores results and dead letters. Its methods may be called by several goroutines.
type Writer struct {
	s         Settings
	conns     natsconn.Connections // all connections of the worker
	js        jetstream.JetStream
	clearance *clearance
	first     publisher.Publisher  // for messages that are published for the first time
	again     publisher.Publisher  // for messages that may have been published before, and for dead letters
	following *publisher.Following // the same as first
	singles   *publisher.Windowed  // the same as again
	way       atomic.Int32         // a topology.Commits: the kind of commits in the result stream
	extra     int                  // see commitBytes
	operators string               // value of HeaderOperators
	content   content              // headers that describe the bodies of results
	refusals  inflight.Refusals
	refused   func(inflight.Refused) // sawRefusal, which is stored here so that no frame allocates a method value

	compressors sync.Pool // contains *compression.Compressor

	size messageSize // maximum size of messages
}

// NewWriter returns a writer over connections that the caller still owns. It queries the result stream's settings, and logs how
// results are stored.
func NewWriter(ctx context.Context, conns natsconn.Connections, s Settings) (*Writer, error) {
	js, err := s.API.New(conns[0])
	if err != nil {
		return nil, err
	}
	w := &Writer{
		s: s, conns: conns, js: js, operators: OperatorNames(s.Operators), content: newContent(s.Format, s.Encoding),
		refusals: inflight.NewRefusals(s.Operators), size: messageSize{conns: conns, log: s.Log}, extra: commitBytes(s.Topology),
	}
	w.refused = w.sawRefusal
	w.clearance = newClearance(ctx, js, s)
	if err := w.openPublisher(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// OperatorNames returns the value of HeaderOperators for these operators.
func OperatorNames(operators []operator.Operator) string {
	names := make([]string, len(operators))
	for i, op := range operators {
		names[i] = op.String()
	}
	return strings.Join(names, ",")
}

// compressor returns the function that compresses result bodies, or nil if they are not compressed. The caller must call done.
func (w *Writer) compressor() (compress func(dst, src []byte) []byte, done func()) {
	if w.s.Encoding == compression.None {
		return nil, func() {}
	}
	c, _ := w.compressors.Get().(*compression.Compressor)
	if c == nil {
		c = &compression.Compressor{}
	}
	return func(dst, src []byte) []byte { return c.Append(dst, w.s.Encoding, src) }, func() { w.compressors.Put(c) }
}

// openPublisher opens the publishers according to the result stream's settings.
func (w *Writer) openPublisher(ctx context.Context) error {
	singles, err := publisher.NewWindowed(w.s.API, w.s.Timeout, w.conns.ForResults(w.s.Exclusive)...)
	if err != nil {
		return err
	}
	first, found, err := publisher.Open(ctx, singles, publisher.Options{
		Stream: w.s.ResultStream, Changed: w.logCapability, Trouble: w.logFailedBatch, Read: w.sawStream,
	})
	if err != nil {
		return err
	}
	w.first, w.again, w.following, w.singles = first, singles, first, singles
	w.logCapability(found)
	return nil
}

// sawStream records the state of the result stream. asked is the time of the query.
func (w *Writer) sawStream(info *jetstream.StreamInfo, asked time.Time) {
	w.clearance.results.saw(info, asked)
	w.size.saw(info)
	way, found, _ := w.s.CommitsOf(info.Config, w.conns[0].ConnectedServerVersion())
	if w.way.Swap(int32(way)) != int32(way) && way != topology.NoCommits {
		w.s.Log.Info("results are stored "+found, "stream", w.s.ResultStream)
	}
}

// logCapability logs the publisher's current capability, unless results are stored with commit markers, which sawStream logs.
func (w *Writer) logCapability(c publisher.Capability) {
	if topology.Commits(w.way.Load()) != topology.NoCommits {
		return
	}
	w.s.Log.Info("results are stored with "+c.Found, "stream", w.s.ResultStream, "advice", c.Advice,
		"looked_up_when_older_than", w.clearance.results.publishFor(time.Now()).String())
}

func (w *Writer) logFailedBatch(err error) {
	w.s.Log.Warn("a batch of results was not confirmed; they are published again one by one", "stream", w.s.ResultStream, "error", err)
}

// publishAttempt publishes the messages of one attempt and appends the server's answers to answers. Messages that were published
// before are sent one by one, because in a batch the server drops a duplicate without reporting it. With replicas, the first copy
// may also still be in replication.
func (w *Writer) publishAttempt(ctx context.Context, attempt int, msgs []*nats.Msg, answers []publisher.Answer) []publisher.Answer {
	if attempt > 1 {
		return w.again.Publish(ctx, msgs, answers)
	}
	return w.first.Publish(ctx, msgs, answers)
}

// awaitRetry waits for the pause before the n-th retry, counted from 1, and then until a connection for results is up. It returns
// false if ctx ends first.
func (w *Writer) awaitRetry(ctx context.Context, n int) bool {
	return retry.Sleep(ctx, retry.Delay(n)) && w.conns.ForResults(w.s.Exclusive).AwaitConnected(ctx)
}

// stored notifies tests that the result of an input is stored.
func (w *Writer) stored(d *inflight.Delivery) {
	if w.s.Stored != nil {
		w.s.Stored(d.Sequence, d.Stored)
	}
}

// AlreadyStored reports a delivery that already had a stored result.
func (w *Writer) AlreadyStored(d *inflight.Delivery) {
	w.stored(d)
	w.Report(inflight.Duplicate, d)
}

// Report notifies the observer of the outcome of a delivery without a new result.
func (w *Writer) Report(o inflight.Outcome, d *inflight.Delivery) {
	since := time.Since(d.Received)
	w.s.Observer.Settled(o, len(d.Msg.Data()), 0, since, w.s.AckWait-since)
}
