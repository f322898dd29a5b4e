package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/retry"
	"millrace/internal/streams"
)

// source pulls continuously from the consumer and puts deliveries into a queue. It pulls more only as they are taken, so what waits in the
// client is bounded in messages and bytes.
type source struct {
	nc       *nats.Conn
	consumer jetstream.Consumer
	size     pull.Size
	limit    *pull.Limit                                    // of size, which follows the server's max_payload
	isolated isolatedPull                                   // how to pull while quarantined payloads may come; nil: there is no quarantine
	hold     func(context.Context, *inflight.Delivery) bool // waits for memory; false if ctx ends first
	force    func(*inflight.Delivery)                       // takes memory at once
	admit    func(*inflight.Delivery) bool                  // false: it was settled otherwise
	unread   func(inflight.Delivery)                        // takes what is not processed any more
	out      *inflight.Queue
	ledger   *ledger
	conns    natsconn.Connections
	hard     context.Context // messages that have come are processed until it ends
	handing  *atomic.Bool    // set while it does not pull because a delivery waits for room; see stalls
	log      *slog.Logger
	observer sharedObserver
}

// recreateWait is the pause before a failed pull starts again.
const recreateWait = 250 * time.Millisecond

// run pulls until ctx is done, then takes what the client still holds, until hard ends. It closes out.
func (s *source) run(ctx, hard context.Context) (err error) {
	defer s.out.Close()
	if s.isolated != nil {
		s.isolated.Begin(ctx)
		defer s.isolated.Leave(s.unread)
		defer func() {
			if !streams.Ended(err) && !streams.Ended(context.Cause(ctx)) {
				err = errors.Join(err, s.isolated.Play(hard)) // finish what has come
			}
		}()
	}
	for ctx.Err() == nil {
		err := s.turn(ctx, hard)
		switch {
		case streams.Ended(err):
			return err
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, nats.ErrConnectionClosed):
			return fmt.Errorf("pulling from the consumer: %w", err)
		case err != nil:
			s.log.Warn("pull interrupted, starting it again", "error", err)
			s.awaitConsumer(ctx)
		}
	}
	return nil
}

// turn prefetches, or pulls through quarantine, until it is time for the other. Then it returns nil.
func (s *source) turn(ctx, hard context.Context) error {
	if s.suspicious() {
		s.handing.Store(true) // except while it fetches
		defer s.handing.Store(false)
		return s.isolated.Run(ctx)
	}
	err := s.pull(ctx, hard)
	if s.suspicious() {
		s.log.Info("payloads come that were delivered before; they are tried apart from others")
		return nil // the pull was ended for that
	}
	return err
}

// suspicious reports whether to pull through quarantine.
func (s *source) suspicious() bool { return s.isolated != nil && s.isolated.Due() }

// isolatedPull pulls while quarantined payloads may come; see quarantine.Controller.
type isolatedPull interface {
	Begin(ctx context.Context)
	Due() bool
	SetAside(d inflight.Delivery)
	Run(ctx context.Context) error
	Play(ctx context.Context) error
	Leave(unread func(inflight.Delivery))
}

// request is what the source asks the consumer for.
func (s *source) request() pull.Request {
	info := s.consumer.CachedInfo()
	return pull.Request{
		Stream: info.Stream, Consumer: info.Name, Messages: s.size.Messages, Limit: s.limit,
		Expires: pull.BeatsPerRequest * s.size.Beat, Heartbeat: s.size.Beat,
	}
}

// pull runs one pull until it fails or ctx is done.
func (s *source) pull(ctx, hard context.Context) error {
	messages, err := pull.Open(s.nc, s.request())
	if err != nil {
		return err
	}
	defer messages.Stop()
	// A drained pull returns what has come and ends. If the connection is down, it ends late, so the wait is bounded. Messages that the
	// server sends just before it learns of the end are lost here, and redelivered at once.
	stopping := context.AfterFunc(ctx, messages.Drain)
	defer stopping()
	var failed error
	ending := false
	for {
		msg, err := messages.Next(hard)
		switch {
		case err == nil:
			s.take(hard, msg)
			if !ending && s.suspicious() {
				ending = true
				messages.Drain()
			}
		case failed != nil || hard.Err() != nil || errors.Is(err, pull.ErrEnded):
			for msg := range messages.Rest() { // finish what has come, or give it back if hard has ended
				s.take(hard, msg)
			}
			return cmp.Or(failed, err)
		default:
			failed = err
			messages.Drain()
		}
	}
}

// awaitConsumer waits until the consumer exists, the connection is closed for good, or ctx is done. The server does not answer pulls from
// a consumer that does not exist.
func (s *source) awaitConsumer(ctx context.Context) {
	said := false
	for retry.Sleep(ctx, recreateWait) {
		_, err := s.consumer.Info(ctx)
		if err == nil {
			s.size.Most = s.consumer.CachedInfo().Config.MaxRequestMaxBytes
			s.limit = s.size.Limit(s.nc) // its own bound may have changed
		}
		if err == nil || errors.Is(err, nats.ErrConnectionClosed) {
			return
		}
		if missing := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound); missing && !said {
			said = true
			s.log.Error("the consumer is gone; waiting for it to come back (create it again, or restart with "+
				"MILLRACE_PROVISION=true)", "error", err)
		}
	}
}

// take queues one message, or sets it aside for quarantine. It does so until hard ends, even after the end of the pull, since a message
// that is given back is delivered a second time.
func (s *source) take(hard context.Context, msg *pull.Message) {
	s.handing.Store(true)
	defer s.handing.Store(false)
	d, ok := s.receive(hard, msg, s.suspicious())
	switch {
	case !ok:
	case d.Level > 0 && s.isolated != nil:
		s.isolated.SetAside(d)
	default:
		s.hand(hard, d)
	}
}

// receive makes a delivery of a message and reports whether it must be processed. After until has ended it leaves the delivery unread. It
// waits for memory unless mustNotWait is set: deliveries that were set aside hold memory, and are settled only if the source continues.
func (s *source) receive(until context.Context, msg *pull.Message, mustNotWait bool) (d inflight.Delivery, ok bool) {
	d, err := inflight.NewDelivery(msg, time.Now())
	if err != nil {
		s.log.Error("message ignored", "error", err)
		return d, false
	}
	if until.Err() != nil {
		s.unread(d)
		return d, false
	}
	if mustNotWait {
		s.force(&d)
	} else if !s.hold(until, &d) {
		s.unread(d)
		return d, false
	}
	s.observer.Pending(d.Pending)
	if d.NumDelivered > 1 {
		s.observer.Redelivered()
	}
	return d, s.admit(&d)
}

// hand queues a delivery for the batchers, or leaves it unread if until ends first.
func (s *source) hand(until context.Context, d inflight.Delivery) {
	if !s.out.Put(until, d) {
		s.unread(d)
	}
}

// Fetch implements quarantine.Intake.
func (s *source) Fetch(n int, wait time.Duration, take func(inflight.Delivery)) (came int, err error) {
	s.handing.Store(false)
	defer s.handing.Store(true)
	wait = min(wait, pull.BeatsPerRequest*s.size.Beat)
	return pull.Fetch(s.nc, s.request(), min(n, s.size.Messages), wait, func(msg *pull.Message) {
		if d, ok := s.receive(s.hard, msg, true); ok {
			take(d)
		}
	})
}

// HandOn implements quarantine.Intake.
func (s *source) HandOn(d inflight.Delivery) { s.hand(s.hard, d) }

// Quiet implements quarantine.Intake. It also flushes the acknowledgements: if a crash lost one, a settled payload would be quarantined.
// It ignores errors of a connection that is down for now.
func (s *source) Quiet(ctx context.Context, n int) error {
	if s.ledger.await(ctx, n) != nil {
		return nil // the caller checks ctx
	}
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	if err := s.conns.Flush(ctx); err != nil && s.conns.Closed() {
		return err
	}
	return nil
}

// sharedObserver is told what the consumer delivers.
type sharedObserver interface {
	Redelivered()
	Pending(messages uint64)
}
