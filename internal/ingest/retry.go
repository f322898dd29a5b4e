package ingest

import (
	"context"

	"millrace/internal/ingest/retry"
)

// awaitRetry waits for the n-th attempt (from 1) to store results again: a while, and without a connection until there is one. It
// is false when ctx is done before.
func (w *Worker) awaitRetry(ctx context.Context, n int) bool {
	return retry.Sleep(ctx, retry.Delay(n)) && w.links.forResults(w.opts.Exclusive).awaitConnected(ctx)
}
