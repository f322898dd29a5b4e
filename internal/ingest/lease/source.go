package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
	"millrace/internal/streams"
)

// source pulls continuously from the consumer and puts deliveries into a queue. It requests more messages only as
// deliveries leave the queue, which bounds the messages and bytes that wait in the client.
type source struct {
	*Shared
	drainCtx context.Context        // limits the processing of received messages
	isolated *quarantine.Controller // pulls while quarantined payloads may arrive
	fetching bool                   // whether Fetch pulls
}

func (m *Shared) newSource(drainCtx context.Context) *source {
	s := &source{Shared: m, drainCtx: drainCtx}
	s.isolated = quarantine.NewController(drainCtx, s, m.o.Pipes, m.o.Pool.Split.MaxRecord, m.ackWait, m.isolation())
	m.pulls, m.queue = s, s
	return s
}

// run pulls until intake is done. Then it processes the messages that the client still holds, until drainCtx ends.
// Finally, it closes out.
func (s *source) run(intake context.Context) (err error) {
	defer s.out.Close()
	s.isolated.Begin(intake)
	defer s.isolated.Leave(s.ends.leave)
	defer func() {
		if !streams.Ended(err) && !streams.Ended(context.Cause(intake)) {
			err = errors.Join(err, s.isolated.Play(s.drainCtx)) // finish the received deliveries
		}
	}()
	for intake.Err() == nil {
		err := s.pullOnce(intake)
		switch {
		case streams.Ended(err):
			return err
		case intake.Err() != nil:
			return nil
		case errors.Is(err, nats.ErrConnectionClosed):
			return fmt.Errorf("pulling from the consumer: %w", err)
		case err != nil:
			s.log.Warn("pull interrupted, starting it again", "error", err)
			s.awaitConsumer(intake)
		}
	}
	return nil
}

// pullOnce either prefetches or pulls through quarantine. It returns nil when the source must switch between the two.
func (s *source) pullOnce(intake context.Context) error {
	if s.mustIsolate() {
		s.busy.Store(true) // cleared only during a fetch
		defer s.busy.Store(false)
		return s.isolated.Run(intake)
	}
	err := s.pull(intake, s.drainCtx)
	if errors.Is(err, errQuarantine) {
		s.log.Info(err.Error())
		return nil
	}
	return err
}

// mustIsolate reports whether the source must pull through quarantine.
func (s *source) mustIsolate() bool { return s.isolated.IsDue() }

// began implements pullPolicy. At its end, a pull is drained: its policy takes the messages that the client has, even after ctx is done,
// because a message that is given back counts as a second delivery. If the connection is down, the pull ends late, so drainCtx bounds the
// wait. The client loses messages that the server sends before it processes the unsubscription. The server redelivers these at once.
func (s *source) began(_, drainCtx context.Context, p leasePull) (over func()) {
	return func() {
		p.Drain()
		for {
			msg, err := p.next(drainCtx)
			if err != nil {
				break
			}
			s.fetched(msg)
		}
		p.rest(func(msg inflight.Incoming) bool { s.fetched(msg); return true })
		p.leave(drainCtx, 0)
	}
}

// fetched takes a message outside the loop of the reader.
func (s *source) fetched(msg inflight.Incoming) {
	var d inflight.Delivery
	_ = s.receive(s.drainCtx, s.drainCtx, msg, &d)
}

// errQuarantine ends a pull because a quarantined payload has arrived.
var errQuarantine = errors.New("payloads come that were delivered before; they are tried apart from others")

// arrived implements pullPolicy. Until drainCtx ends, it takes all deliveries.
func (s *source) arrived(_, drainCtx context.Context, d *inflight.Delivery) error {
	if _, err := s.take(drainCtx, drainCtx, d); err != nil {
		return err
	}
	if s.mustIsolate() {
		return errQuarantine
	}
	return nil
}

// idle implements pullPolicy. The requests of shared delivery have no idle time.
func (s *source) idle(context.Context, context.Context) error { return nil }

// Hold implements queue. It doesn't wait in quarantine. The wait could deadlock, because the deliveries of the held set hold memory until the
// source continues.
func (s *source) Hold(ctx context.Context, d *inflight.Delivery) bool {
	if !s.fetching && !s.mustIsolate() {
		return s.o.Pool.Hold(ctx, s.o.Share, d)
	}
	s.o.Pool.Force(s.o.Share, d)
	return true
}

// Put implements queue. It sets quarantined deliveries aside, and all deliveries of a Fetch.
func (s *source) Put(ctx context.Context, d inflight.Delivery) bool {
	if s.fetching || d.Level > 0 {
		s.isolated.SetAside(d)
		return true
	}
	return s.out.Put(ctx, d)
}

// HandOn implements quarantine.Intake.
func (s *source) HandOn(d inflight.Delivery) {
	if !s.out.Put(s.drainCtx, d) {
		s.ends.leave(d)
	}
}

// recreateWait is the pause before each check of the consumer after a failed pull.
const recreateWait = 250 * time.Millisecond

// awaitConsumer waits until the consumer exists, the connection is permanently closed, or ctx is done. The server does
// not answer pulls from a consumer that does not exist.
func (s *source) awaitConsumer(ctx context.Context) {
	logged := false
	for retry.Sleep(ctx, recreateWait) {
		_, err := s.server.Info(ctx)
		if err == nil || errors.Is(err, nats.ErrConnectionClosed) {
			return
		}
		if missing := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound); missing && !logged {
			logged = true
			s.log.Error("the consumer is gone; waiting for it to come back (create it again, or restart a worker with "+
				"MILLRACE_PROVISION=true)", "error", err)
		}
	}
}

// Fetch implements quarantine.Intake. During quarantine, the source pulls only here.
func (s *source) Fetch(n int, wait time.Duration) (came int, err error) {
	s.busy.Store(false)
	s.fetching = true
	defer func() { s.fetching = false; s.busy.Store(true) }()
	return s.server.fetch(n, wait, s.fetched)
}

// AwaitQuiet implements quarantine.Intake. It also flushes the acknowledgements. If a crash lost one, a settled payload
// would be quarantined. It ignores errors while the connection is temporarily down.
func (s *source) AwaitQuiet(ctx context.Context, n int) error {
	if s.ends.ledger.await(ctx, n) != nil {
		return nil // the caller checks ctx
	}
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	if err := s.server.flush(ctx); errors.Is(err, nats.ErrConnectionClosed) {
		return err
	}
	return nil
}

// countedDeliveries is the blame of shared delivery. It derives the quarantine levels from the server's delivery counts.
type countedDeliveries struct {
	ledger *ledger
	judge  *quarantine.Judge
	levels quarantine.Levels
	limit  int // number of deliveries after which a payload is tried alone
	last   int // the consumer's MaxDeliver; 0 or less means no limit
}

// assess implements blame. If the consumer's MaxDeliver prevents a redelivery of the payload, only a dead letter can preserve it.
func (c *countedDeliveries) assess(d *inflight.Delivery) (why results.Reason, cause error) {
	d.Level = c.levelOf(d)
	if c.last > 0 && d.NumDelivered >= c.last && d.NumDelivered > c.limit {
		return results.MaxDeliver, fmt.Errorf("delivery %d, and the consumer's own MaxDeliver allows no more", d.NumDelivered)
	}
	return "", nil
}

// levelOf returns the quarantine level of a delivery; see quarantine.Levels. A delivery that this process gave back has
// level 0, because the process survived it. A payload is tried alone if it is held back or was delivered more often
// than limit. The count alone never makes it a dead letter, because workers may have died or given it back for other
// reasons.
func (c *countedDeliveries) levelOf(d *inflight.Delivery) int {
	level := d.NumDelivered - 1
	if c.ledger.gaveBack(d) {
		level = 0
	}
	if d.NumDelivered > c.limit || c.judge.Holds(d) {
		level = max(level, c.levels.AloneLevel())
	}
	return level
}
