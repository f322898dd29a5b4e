package ingest

import (
	"context"
	"time"
)

// retryWait is the pause before the n-th attempt (from 1) to store what could not be stored.
func retryWait(n int) time.Duration {
	return min(50*time.Millisecond<<min(n-1, 6), 2*time.Second)
}

// awaitRetry pauses before the n-th attempt (from 1) to store results again, and then waits until a connection for results is up.
// It returns false once ctx is done.
func (w *Worker) awaitRetry(ctx context.Context, n int) bool {
	return sleep(ctx, retryWait(n)) && w.links.forResults(w.opts.Exclusive).awaitConnected(ctx)
}

// sleep waits for d or the end of ctx, and says whether it waited for d.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
