package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
	"millrace/internal/streams"
)

// source pulls continuously from the consumer and puts deliveries into a queue. It requests more messages only as
// deliveries leave the queue, which bounds the messages and bytes that wait in the client.
type source struct {
	*Shared
	drainCtx context.Context // limits the processing of received messages
	out      *inflight.Queue
	isolated *quarantine.Controller // pulls while quarantined payloads may arrive
}

func (m *Shared) newSource(drainCtx context.Context) *source {
	s := &source{Shared: m, drainCtx: drainCtx, out: inflight.NewQueue(inflight.QueueMax)}
	s.isolated = quarantine.NewController(drainCtx, s, m.o.Pipes, m.admission.maxBytes, m.ackWait, m.isolation())
	return s
}

// run pulls until intake is done. Then it processes the messages that the client still holds, until drainCtx ends.
// Finally, it closes out.
func (s *source) run(intake context.Context) (err error) {
	defer s.out.Close()
	s.isolated.Begin(intake)
	defer s.isolated.Leave(s.unread.add)
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
			s.o.Log.Warn("pull interrupted, starting it again", "error", err)
			s.awaitConsumer(intake)
		}
	}
	return nil
}

// pullOnce either prefetches or pulls through quarantine. It returns nil when the source must switch between the two.
func (s *source) pullOnce(intake context.Context) error {
	if s.mustIsolate() {
		s.occupied.Store(true) // cleared only during a fetch
		defer s.occupied.Store(false)
		return s.isolated.Run(intake)
	}
	err := s.prefetch(intake)
	if s.mustIsolate() {
		s.o.Log.Info("payloads come that were delivered before; they are tried apart from others")
		return nil // the pull was ended to switch to quarantine
	}
	return err
}

// mustIsolate reports whether the source must pull through quarantine.
func (s *source) mustIsolate() bool { return s.isolated.IsDue() }

// prefetch runs one pull until the pull fails, intake is done, or the source must switch to quarantine.
func (s *source) prefetch(intake context.Context) error {
	messages, err := s.server.pull()
	if err != nil {
		return err
	}
	defer messages.leave(s.drainCtx, 0)
	// A drained pull returns the received messages and ends. If the connection is down, the pull ends late, so drainCtx
	// bounds the wait. The client loses messages that the server sends before it processes the unsubscription. The
	// server redelivers these messages at once.
	stopping := context.AfterFunc(intake, messages.Drain)
	defer stopping()
	var failed error
	ending := false
	for {
		msg, err := messages.next(s.drainCtx)
		switch {
		case err == nil:
			s.take(msg)
			if !ending && s.mustIsolate() {
				ending = true
				messages.Drain()
			}
		case failed != nil || s.drainCtx.Err() != nil || errors.Is(err, pull.ErrEnded):
			for msg := range messages.rest { // process the received messages, or give them back if drainCtx has ended
				s.take(msg)
			}
			return cmp.Or(failed, err)
		default:
			failed = err
			messages.Drain()
		}
	}
}

// take queues one message, or sets it aside for quarantine. Even after the end of the pull, take processes messages
// until drainCtx ends, because a message that is given back counts as a second delivery.
func (s *source) take(msg inflight.Incoming) {
	s.occupied.Store(true)
	defer s.occupied.Store(false)
	d, ok := s.receive(msg, s.mustIsolate())
	switch {
	case !ok:
	case d.Level > 0:
		s.isolated.SetAside(d)
	default:
		s.HandOn(d)
	}
}

// receive converts a message to a delivery and reports whether it must be processed. After drainCtx has ended, it
// passes the delivery to unread. It waits for memory unless mustNotWait is set. The wait could deadlock if deliveries
// are set aside, because they hold memory until the source continues.
func (s *source) receive(msg inflight.Incoming, mustNotWait bool) (d inflight.Delivery, ok bool) {
	d, err := inflight.NewDelivery(msg, time.Now())
	if err != nil {
		s.o.Log.Error("message ignored", "error", err)
		return d, false
	}
	if s.drainCtx.Err() != nil {
		s.unread.add(d)
		return d, false
	}
	if mustNotWait {
		s.o.Pool.Force(&d)
	} else if !s.o.Pool.Hold(s.drainCtx, &d) {
		s.unread.add(d)
		return d, false
	}
	s.o.Observer.Pending(d.Pending)
	if d.NumDelivered > 1 {
		s.o.Observer.Redelivered()
	}
	return d, s.admission.admit(s.drainCtx, &d)
}

// HandOn implements quarantine.Intake. It queues a delivery, or passes it to unread if drainCtx ends first.
func (s *source) HandOn(d inflight.Delivery) {
	if !s.out.Put(s.drainCtx, d) {
		s.unread.add(d)
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
			s.o.Log.Error("the consumer is gone; waiting for it to come back (create it again, or restart a worker with "+
				"MILLRACE_PROVISION=true)", "error", err)
		}
	}
}

// Fetch implements quarantine.Intake. During quarantine, the source pulls only here.
func (s *source) Fetch(n int, wait time.Duration, take func(inflight.Delivery)) (came int, err error) {
	s.occupied.Store(false)
	defer s.occupied.Store(true)
	return s.server.fetch(n, wait, func(msg inflight.Incoming) {
		if d, ok := s.receive(msg, true); ok {
			take(d)
		}
	})
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

// unread collects received deliveries that will not be packed into a batch. They are given back after the end of the
// pull, because the server would otherwise deliver them to this worker again.
type unread struct {
	mu   sync.Mutex
	list []inflight.Delivery
}

func (u *unread) add(d inflight.Delivery) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.list = append(u.list, d)
}

func (u *unread) takeAll() []inflight.Delivery {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := u.list
	u.list = nil
	return list
}

// admission selects the deliveries that must be processed, and sets their quarantine levels.
type admission struct {
	ends     *acknowledger
	judge    *quarantine.Judge
	levels   quarantine.Levels
	maxBytes int // maximum payload size in bytes: the smallest batch's capacity
	limit    int // number of deliveries after which a payload is tried alone
	last     int // the consumer's MaxDeliver; 0 or less means no limit
}

// admit reports whether a delivery must be processed. It gives up a delivery that can never be processed. It repeats
// the acknowledgement of a settled input, and acknowledges a delete marker, which isn't an input.
func (a *admission) admit(ctx context.Context, d *inflight.Delivery) bool {
	d.Level = a.levelOf(d)
	switch a.ends.ledger.take(d) {
	case inFlight:
		a.ends.pool.Release(d)
		return false
	case done:
		a.ends.ack(d)
		a.ends.pool.Release(d)
		a.ends.results.AlreadyStored(d)
		return false
	}
	if pull.IsDeleteMarker(d.Msg.Headers(), d.Msg.Data()) {
		a.ends.ack(d)
		a.ends.pool.Release(d)
		return false
	}
	var why results.Reason
	var cause error
	switch n := len(d.Msg.Data()); {
	case n > a.maxBytes && !a.ends.pool.Splits():
		why = results.TooLarge
		cause = results.ErrExceedsBatch(n, a.maxBytes)
	case a.lastChance(d):
		why, cause = results.MaxDeliver, tooOften(d)
	default:
		a.ends.pool.Unpack(d)
		return true
	}
	a.ends.GiveUp(ctx, *d, why, cause)
	d.Cost = 0 // the dead letter holds the memory now
	return false
}

// levelOf returns the quarantine level of a delivery; see quarantine.Levels. A delivery that this process gave back has
// level 0, because the process survived it. A payload is tried alone if it is held back or was delivered more often
// than limit. The count alone never makes it a dead letter, because workers may have died or given it back for other
// reasons.
func (a *admission) levelOf(d *inflight.Delivery) int {
	level := d.NumDelivered - 1
	if a.ends.ledger.gaveBack(d) {
		level = 0
	}
	if d.NumDelivered > a.limit || a.judge.Holds(d) {
		level = max(level, a.levels.AloneLevel())
	}
	return level
}

// lastChance reports whether the consumer's MaxDeliver prevents a redelivery of the payload. Only a dead letter can
// then preserve the payload.
func (a *admission) lastChance(d *inflight.Delivery) bool {
	return a.last > 0 && d.NumDelivered >= a.last && d.NumDelivered > a.limit
}

func tooOften(d *inflight.Delivery) error {
	return fmt.Errorf("delivery %d, and the consumer's own MaxDeliver allows no more", d.NumDelivered)
}
