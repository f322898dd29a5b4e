package shared

import (
	"context"
	"sync/atomic"
	"time"

	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/stall"
)

// watchBacklog queries the state of the consumer every stall.Interval until ctx is done. It reports the backlog to the observer,
// and the consumer's state to the stall detector. While occupied is set, the worker itself does not pull.
func watchBacklog(ctx context.Context, s Settings, occupied *atomic.Bool) {
	for {
		asked, done := context.WithTimeout(ctx, stall.Interval)
		info, err := s.Consumer.Info(asked)
		done()
		if err == nil {
			s.Observer.Pending(info.NumPending)
			s.Stalls.Saw(0, info, occupied.Load(), time.Now())
		} else {
			s.Stalls.Unknown(0, time.Now())
		}
		if !retry.Sleep(ctx, stall.Interval) {
			return
		}
	}
}
