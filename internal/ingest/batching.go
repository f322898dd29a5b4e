package ingest

import (
	"context"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// runBatcher fills and submits batches, in turn with others, until the deliveries end, the time for draining is over, or the
// pipeline is; then it returns nil or the reason. What it took and did not submit is left unread: see leaveUnread.
func (w *Worker) runBatcher(hard context.Context, f *inflight.Batcher) error {
	for {
		g, err := w.pool.Reserve(hard, f.Pipe)
		switch {
		case err == nil:
		case hard.Err() != nil:
			return nil
		default:
			return err
		}
		b, why, err := f.Next(g)
		if b == nil {
			return err
		}
		if err := w.submit(f, b, g, why); err != nil {
			return err
		}
	}
}

// submit hands a filled batch to the device. Of a batch that the device refuses see refused; only the end of the
// pipeline is an error.
func (w *Worker) submit(f *inflight.Batcher, b *streams.Batch, g *inflight.Batch, why streams.CloseReason) error {
	err := w.pool.Submit(b, g, f.Window, why)
	if err == nil {
		return nil
	}
	b.Release()
	w.bisector.Refused(f.Pipe, g, err)
	if streams.Ended(err) {
		return err
	}
	return nil
}
