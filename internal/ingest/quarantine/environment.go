package quarantine

import (
	"context"
	"errors"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// Intake is where careful pulling gets deliveries from. Package shared implements it.
type Intake interface {
	// Fetch asks the server for up to n deliveries, waits up to wait for the first, and hands each that is to be processed to take. It
	// returns how many came.
	Fetch(n int, wait time.Duration, take func(inflight.Delivery)) (came int, err error)

	// HandOn processes a fresh delivery as any other.
	HandOn(d inflight.Delivery)

	// Quiet returns once all but n of the deliveries that the worker has taken are settled and the server knows it.
	Quiet(ctx context.Context, n int) error
}

// liveEnvironment is how careful pulling reaches the server and the devices. It belongs to the source's goroutine.
type liveEnvironment struct {
	Intake
	pipes []*streams.Pipeline
	trier *tester
	hard  context.Context // what is on a device is finished after the end of intake, until this ends
}

// fetchWait is how long a fetch waits for a payload. With the end of intake nothing ends it sooner: what the server
// had on the way would be lost to this worker until AckWait.
const fetchWait = 250 * time.Millisecond

// NewController makes what the source pulls with while suspects are about. most is the payload bytes of a batch.
func NewController(hard context.Context, in Intake, pipes []*streams.Pipeline, most int, ackWait time.Duration, i Isolation) *Controller {
	return &Controller{
		around: &liveEnvironment{Intake: in, pipes: pipes, trier: newTester(i), hard: hard},
		levels: i.Levels, most: most, held: heldSet{g: i.Pool.NewBatch()},
		caution: caution{horizon: ackWait + inflight.MaxNakDelay},
	}
}

func (s *liveEnvironment) now() time.Time { return time.Now() }

func (s *liveEnvironment) fetch(_ context.Context, n int, wait bool, take func(inflight.Delivery)) (came int, err error) {
	patience := time.Duration(0)
	if wait {
		patience = fetchWait
	}
	return s.Fetch(n, patience, take)
}

func (s *liveEnvironment) outstanding(ctx context.Context) (all, redelivered int, err error) {
	return s.trier.Attempts.outstanding(ctx)
}

func (s *liveEnvironment) quiet(ctx context.Context, mine int) error { return s.Quiet(ctx, mine) }

// flow hands fresh payloads on, as the pull does: a stop finds them in hand, and they are finished.
func (s *liveEnvironment) flow(_ context.Context, g *inflight.Batch, items []int) error {
	for _, i := range items {
		g.Settle(i)
		s.HandOn(g.HandOver(i))
	}
	return nil
}

// try takes another device with each level where there are several: a payload that has lost one may be unlucky.
func (s *liveEnvironment) try(_ context.Context, g *inflight.Batch, items []int) error {
	d := &g.Items[items[0]]
	pipe := s.pipes[d.Level%len(s.pipes)]
	run := s.trier.try
	if d.Level >= s.trier.Levels.Alone() && len(items) == 1 {
		run = s.trier.tryAlone
	}
	err := run(s.hard, pipe, g, items)
	for _, i := range items {
		s.trier.Pool.Release(&g.Items[i])
	}
	if errors.Is(err, context.Canceled) {
		return nil // the drain ran out of time, and the worker gives back what is left
	}
	return err
}
