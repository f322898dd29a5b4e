package ingest

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/layout"
)

// renewal is what is known of the input stream's renewal. The stream may be made anew while the worker runs, so whoever begins to
// take inputs asks.
type renewal struct {
	mu    sync.Mutex
	found layout.Renewed
}

// ask looks at the streams.
func (r *renewal) ask(ctx context.Context, js jetstream.JetStream, w *Worker) (layout.Renewed, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r.mu.Lock()
	before := r.found
	r.mu.Unlock()
	found, err := layout.LookForRenewal(ctx, js, w.opts.Layout, before)
	if err != nil {
		return found, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !found.Created.Equal(r.found.Created) && !found.Until.IsZero() {
		w.log.Info("the input stream is younger than results in the result stream: should another of its name have been there before, "+
			"ids of these are taken, and those of results for its first inputs tell when it was made", "stream", w.opts.Stream,
			"made", found.Created, "inputs_until", found.Until)
	}
	r.found = found
	return found, nil
}
