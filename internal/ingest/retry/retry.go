// Package retry computes and waits for the pause before a failed operation is retried.
//
// The worker command and the packages of ingest use it. Start reading at Delay.
package retry

import (
	"context"
	"time"
)

// Delay returns the pause before the n-th retry, counted from 1. The pause starts at 50 ms, doubles
// with each retry, and is at most 2 s.
func Delay(n int) time.Duration {
	return min(50*time.Millisecond<<min(n-1, 6), 2*time.Second)
}

// Sleep waits for d or the end of ctx, and reports whether it waited for d.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
