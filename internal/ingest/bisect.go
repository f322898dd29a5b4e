package ingest

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// failed is a batch that an operator failed on, on a device that is well.
type failed struct {
	pipe *streams.Pipeline
	g    *inflight.Batch // its deliveries. It counts against the budget until each of them is settled
}

// refused takes over a group whose batch came to nothing. What no payload can be blamed for is given back. Otherwise
// the payload to blame is looked for; but of all groups only a few may wait for that, or fresh batches would find
// none, and others are given back to come again later.
func (w *Worker) refused(pipe *streams.Pipeline, g *inflight.Batch, err error) {
	if operatorFailed(err) {
		select {
		case w.failed <- failed{pipe, g}:
			w.log.Error("an operator failed on a batch; looking for the payload to blame, once the device has proved to be well", "payloads", len(g.Items), "error", err)
			return
		default:
		}
	}
	w.nakGroup(g, err)
	w.pool.Recycle(g)
	if !streams.Ended(err) {
		w.log.Error("the device refused a batch; its payloads are delivered again later", "error", err)
	}
}

// bisect finds the payloads to blame in one failed batch after another, until done.
func (w *Worker) bisect(t *trier, done <-chan struct{}, hard context.Context) {
	for {
		select {
		case f := <-w.failed:
			err := t.probe(hard, f.pipe)
			if err == nil {
				err = t.try(hard, f.pipe, f.g, f.g.Unsettled())
			}
			if err == nil {
				err = context.Canceled
			}
			w.nakGroup(f.g, err) // what a lost device or the end of the drain left
			w.pool.Recycle(f.g)
		case <-done:
			return
		}
	}
}
