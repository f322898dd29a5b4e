package quarantine

import (
	"context"
	"errors"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// Intake is the source of a Controller's deliveries. Shared delivery implements it.
type Intake interface {
	// Fetch requests up to n deliveries, waits up to wait for the first, and passes each that must be processed to take. came is
	// the number of deliveries that arrived.
	Fetch(n int, wait time.Duration, take func(inflight.Delivery)) (came int, err error)

	// HandOn processes a new delivery outside quarantine.
	HandOn(d inflight.Delivery)

	// AwaitQuiet waits until at most n of the worker's deliveries are unsettled, and the server has processed the acknowledgements.
	AwaitQuiet(ctx context.Context, n int) error
}

// liveEnvironment is the environment of a real worker. Only the goroutine that pulls may use it.
type liveEnvironment struct {
	Intake
	pipes    []*streams.Pipeline
	trier    *tester
	drainCtx context.Context // limits the wait for batches on a device
}

// fetchWait is the maximum time for which a fetch waits for a payload. The end of intake does not shorten it, because the server
// would redeliver messages in transit only after AckWait.
const fetchWait = 250 * time.Millisecond

// NewController returns a Controller that pulls through in. limit is the maximum number of payload bytes per batch. Batches may
// finish until drainCtx ends.
func NewController(drainCtx context.Context, in Intake, pipes []*streams.Pipeline, limit int, ackWait time.Duration, i Isolation) *Controller {
	return &Controller{
		around: &liveEnvironment{Intake: in, pipes: pipes, trier: newTester(i), drainCtx: drainCtx},
		levels: i.Levels, max: limit, held: heldSet{g: i.Pool.NewBatch()},
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

func (s *liveEnvironment) awaitQuiet(ctx context.Context, mine int) error {
	return s.AwaitQuiet(ctx, mine)
}

// flow passes new payloads on. The end of ctx does not interrupt it, because received payloads are processed.
func (s *liveEnvironment) flow(_ context.Context, g *inflight.Batch, items []int) error {
	for _, i := range items {
		g.Settle(i)
		s.HandOn(g.HandOver(i))
	}
	return nil
}

// try uses another device for each level if there are several, because a device may be the cause of the failures.
func (s *liveEnvironment) try(_ context.Context, g *inflight.Batch, items []int) error {
	d := &g.Items[items[0]]
	pipe := s.pipes[d.Level%len(s.pipes)]
	run := s.trier.tryItems
	if d.Level >= s.trier.Levels.AloneLevel() && len(items) == 1 {
		run = s.trier.tryAlone
	}
	err := run(s.drainCtx, pipe, g, items)
	for _, i := range items {
		s.trier.Pool.Release(&g.Items[i])
	}
	if errors.Is(err, context.Canceled) {
		return nil // the drain timed out, and the worker gives back the remaining deliveries
	}
	return err
}
