package broker

import (
	"fmt"
	"sync/atomic"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/trim"
)

// tally is an observer that signals when a worker has moved its load.
type tally struct {
	want   int64
	stored atomic.Int64
	all    chan struct{}       // closed when every result is stored and its input acknowledged
	failed chan error          // receives the error that prevents it
	took   func(time.Duration) // receives the time of each payload from received to stored; nil for none
}

func newTally(n int, took func(time.Duration)) *tally {
	return &tally{want: int64(n), all: make(chan struct{}), failed: make(chan error, 1), took: took}
}

// Settled implements ingest.Observer.
func (t *tally) Settled(o inflight.Outcome, in, _ int, latency, _ time.Duration) {
	switch o {
	case inflight.Nacked: // it will be redelivered
	case inflight.DeadLettered:
		select {
		case t.failed <- fmt.Errorf("a payload of %d bytes became a dead letter", in):
		default:
		}
	default:
		if t.took != nil {
			t.took(latency)
		}
		if t.stored.Add(1) == t.want {
			close(t.all)
		}
	}
}

// Frame implements ingest.Observer.
func (*tally) Frame(inflight.FrameStats) {}

// Redelivered implements ingest.Observer.
func (*tally) Redelivered() {}

func (*tally) Stalled(int) {}

// Trim implements ingest.Observer.
func (*tally) Trim(uint64, trim.State) {}

// Restarted implements ingest.Observer.
func (*tally) Restarted() {}

// Pending implements ingest.Observer.
func (*tally) Pending(uint64) {}

// Unacknowledged implements ingest.Observer.
func (*tally) Unacknowledged(uint64) {}

// OperatorFault implements ingest.Observer.
func (*tally) OperatorFault(inflight.OperatorFault) {}

// DeadLettered implements ingest.Observer.
func (*tally) DeadLettered(inflight.DeadLetter) {}

// PayloadLeftOut implements ingest.Observer.
func (*tally) PayloadLeftOut() {}

// Reconnected implements ingest.Observer.
func (*tally) Reconnected() {}
