package broker

import (
	"fmt"
	"sync/atomic"
	"time"

	"millrace/internal/ingest/inflight"
)

// tally is an observer that signals when a worker has moved its load. The zero tally observes nothing.
type tally struct {
	want    int64
	stored  atomic.Int64
	all     chan struct{}       // closed when every result is stored and its input acknowledged
	failed  chan error          // receives the error that prevents it
	latency func(time.Duration) // receives the time of each payload from received to stored; nil for none
}

func newTally(n int) *tally {
	return &tally{want: int64(n), all: make(chan struct{}), failed: make(chan error, 1)}
}

// Settled implements ingest.Observer.
func (t *tally) Settled(o inflight.Outcome, in, _ int, latency, _ time.Duration) {
	switch {
	case t.all == nil || o == inflight.Nacked: // it will be redelivered
	case o == inflight.DeadLettered:
		select {
		case t.failed <- fmt.Errorf("a payload of %d bytes became a dead letter", in):
		default:
		}
	default:
		if t.latency != nil {
			t.latency(latency)
		}
		if t.stored.Add(1) == t.want {
			close(t.all)
		}
	}
}

// Redelivered implements ingest.Observer.
func (*tally) Redelivered() {}

func (*tally) Stalled(int) {}

func (*tally) Restarted() {}

// Pending implements ingest.Observer.
func (*tally) Pending(uint64) {}

// Reconnected implements ingest.Observer.
func (*tally) Reconnected() {}
