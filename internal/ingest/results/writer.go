package results

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
)

// Writer stores results and dead letters. Its methods are safe for concurrent use.
type Writer struct {
	*encoder
	server    *Server
	clearance *clearance
	way       atomic.Int32 // kind of commits in the result stream (a topology.Commits)

	nc      *nats.Conn // this and the following fields are nil in models of the server
	js      jetstream.JetStream
	singles *store.Windowed
}

// NewWriter returns a Writer over conns, which the caller still owns. It queries the result stream's settings, and logs the way in
// which results are stored.
func NewWriter(ctx context.Context, conns natsconn.Connections, o Options) (*Writer, error) {
	js, err := o.API.New(conns[0])
	if err != nil {
		return nil, err
	}
	forResults := conns.ForResults(o.Exclusive)
	singles, err := store.NewWindowed(o.API, o.Timeout, forResults...)
	if err != nil {
		return nil, err
	}
	s := &Server{
		Again: singles, StoreApart: singles.Store, MaxPayload: conns[0].MaxPayload, Closed: conns.Closed, AwaitConnected: forResults.AwaitConnected,
		Reconnect: func(ctx context.Context) bool { return reconnect(ctx, conns, o.Log) },
	}
	w := newWriter(s, o)
	w.nc, w.js, w.singles = conns[0], js, singles
	s.Find = w.clearance.open(ctx, js).Find
	first, err := store.Follow(ctx, singles, store.FollowOptions{
		Stream: o.ResultStream, Changed: w.logCapability, Trouble: w.logFailedBatch, Read: w.sawStream,
	})
	if err != nil {
		return nil, err
	}
	s.First, s.Refresh = first, first.Refresh
	return w, nil
}

// Close ends the Writer's subscriptions. Nothing may be stored afterwards.
func (w *Writer) Close() { w.singles.Close() }

// NewModelWriter returns a Writer over a model of the server. results and letters are the current states of the streams.
func NewModelWriter(s *Server, o Options, results, letters *jetstream.StreamInfo) *Writer {
	w, now := newWriter(s, o), time.Now()
	w.clearance.results.saw(results, now)
	w.clearance.sawLetters(letters, now)
	return w
}

func newWriter(s *Server, o Options) *Writer {
	if o.Stored == nil {
		o.Stored = func(uint64, time.Time) {}
	}
	return &Writer{encoder: newEncoder(o, s), server: s, clearance: &clearance{o: o, server: s}}
}

// sawStream records info, the result stream's state, which was queried at asked.
func (w *Writer) sawStream(info *jetstream.StreamInfo, asked time.Time) {
	w.clearance.results.saw(info, asked)
	w.size.saw(info)
	way, found, _ := w.o.CommitsOf(info.Config, w.nc.ConnectedServerVersion())
	if w.way.Swap(int32(way)) != int32(way) && way != topology.NoCommits {
		w.o.Log.Info("results are stored "+found, "stream", w.o.ResultStream)
	}
}

// logCapability logs c, unless results are stored with commit markers. sawStream logs commit markers.
func (w *Writer) logCapability(c store.Capability) {
	if topology.Commits(w.way.Load()) != topology.NoCommits {
		return
	}
	w.o.Log.Info("results are stored with "+c.Found, "stream", w.o.ResultStream, "advice", c.Advice,
		"looked_up_when_older_than", w.clearance.results.publishFor(time.Now()).String())
}

func (w *Writer) logFailedBatch(err error) {
	w.o.Log.Warn("a batch of results was not confirmed; they are published again one by one", "stream", w.o.ResultStream, "error", err)
}

// publishAttempt publishes msgs and appends the server's answers to answers. After the first attempt, it publishes one by one,
// because in a batch the server drops a duplicate without reporting it. With replicas, the first copy might also not be replicated
// yet.
func (w *Writer) publishAttempt(ctx context.Context, attempt int, msgs []*nats.Msg, answers []store.Answer) []store.Answer {
	if attempt > 1 {
		return w.server.Again.Publish(ctx, msgs, answers)
	}
	return w.server.First.Publish(ctx, msgs, answers)
}

// awaitRetry waits for the pause before the n-th retry, counted from 1, and then until a connection for results is up. It returns
// false if ctx ends first.
func (w *Writer) awaitRetry(ctx context.Context, n int) bool {
	return retry.Sleep(ctx, retry.Delay(n)) && w.server.AwaitConnected(ctx)
}

// Known returns false. Store looks up the inputs that may have a result already.
func (w *Writer) Known(context.Context, *inflight.Delivery) (bool, error) { return false, nil }

// AlreadyStored reports a delivery whose result was already stored.
func (w *Writer) AlreadyStored(d *inflight.Delivery) {
	w.o.Stored(d.Sequence, d.Stored)
	w.Report(inflight.Duplicate, d)
}

// Report notifies the observer of the outcome o of d, which has no new result.
func (w *Writer) Report(o inflight.Outcome, d *inflight.Delivery) {
	since := time.Since(d.Received)
	w.o.Observer.Settled(o, len(d.Msg.Data()), 0, since, w.o.AckWait-since)
}
