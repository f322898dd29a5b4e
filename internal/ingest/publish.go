package ingest

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/store"
)

// publisher is where results and dead letters are stored.
type publisher struct {
	results store.Store // what is published for the first time
	singles store.Store // what may have been published before, and dead letters
}

// openPublisher asks the result stream how it takes results, and says so in the log. An answer of the server counts
// as lost after timeout.
func (w *Worker) openPublisher(ctx context.Context, timeout time.Duration) (publisher, error) {
	singles, err := store.NewWindowed(timeout, w.links.forResults(w.opts.Exclusive)...)
	if err != nil {
		return publisher{}, err
	}
	results, found, err := store.Open(ctx, singles, store.Options{
		Stream: w.opts.ResultStream, Changed: w.publishingChanged, Trouble: w.batchFailed, Read: w.clearance.saw,
	})
	if err != nil {
		return publisher{}, err
	}
	w.publishingChanged(found)
	return publisher{results: results, singles: singles}, nil
}

// publishingChanged says how results are stored from now on.
func (w *Worker) publishingChanged(c store.Capability) {
	w.log.Info("results are stored with "+c.Found, "stream", w.opts.ResultStream, "advice", c.Advice,
		"looked_up_when_older_than", w.clearance.results.publishFor(time.Now()).String())
}

// batchFailed says that a batch of results has to be published again.
func (w *Worker) batchFailed(err error) {
	w.log.Warn("a batch of results was not confirmed; they are published again one by one", "stream", w.opts.ResultStream, "error", err)
}

// publishAttempt stores the messages of one attempt and appends the server's word on each to answers. What was
// published before goes one by one: the server drops a message that it knows without saying so among many, and
// where the stream has replicas, a message that it knows may still be on its way to them.
func (p publisher) publishAttempt(ctx context.Context, attempt int, msgs []*nats.Msg, answers []store.Answer) []store.Answer {
	if attempt > 1 {
		return p.singles.Put(ctx, msgs, answers)
	}
	return p.results.Put(ctx, msgs, answers)
}
