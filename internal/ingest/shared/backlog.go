package shared

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/stall"
)

func unacknowledged(info *jetstream.ConsumerInfo) uint64 { return uint64(max(info.NumAckPending, 0)) }

// watchBacklog queries the consumer every stall.Interval until ctx is done. It passes the backlog to the observer, and
// the consumer's state to the stall detector. occupied reports whether this worker itself has paused the pull.
func watchBacklog(ctx context.Context, o Options, occupied *atomic.Bool) {
	for {
		asked, done := context.WithTimeout(ctx, stall.Interval)
		info, err := o.Consumer.Info(asked)
		done()
		if err == nil {
			o.Observer.Pending(info.NumPending)
			o.Observer.Unacknowledged(unacknowledged(info))
			o.Stalls.Saw(0, info, occupied.Load(), time.Now())
		} else {
			o.Stalls.MarkUnknown(0, time.Now())
		}
		if !retry.Sleep(ctx, stall.Interval) {
			return
		}
	}
}
