package shared

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
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/retry"
	"millrace/internal/streams"
)

// source pulls continuously from the consumer and puts deliveries into a queue. It requests more messages only as
// deliveries leave the queue, which bounds the messages and bytes that wait in the client.
type source struct {
	nc       *nats.Conn
	conns    natsconn.Connections
	api      jsapi.API // JetStream API of the consumer's account
	consumer jetstream.Consumer
	size     pull.Size
	limit    *pull.Limit     // byte limit of size, which follows the server's max_payload
	drainCtx context.Context // limits the processing of received messages
	out      *inflight.Queue
	isolated isolatedPull // pulls while quarantined payloads may arrive; nil without quarantine
	ledger   *ledger
	// occupied is set while the source doesn't pull, because a delivery waits for space or is tried. See package stall.
	occupied *atomic.Bool
	log      *slog.Logger
	observer Observer

	hold   func(context.Context, *inflight.Delivery) bool // waits for memory; returns false if ctx ends first
	force  func(*inflight.Delivery)                       // takes memory without waiting
	admit  func(*inflight.Delivery) bool                  // returns false if the delivery must not be processed
	unread func(inflight.Delivery)                        // receives deliveries that will not be processed
}

// isolatedPull pulls while quarantined payloads may arrive; see quarantine.Controller.
type isolatedPull interface {
	Begin(ctx context.Context)
	IsDue() bool
	SetAside(d inflight.Delivery)
	Run(ctx context.Context) error
	Play(ctx context.Context) error
	Leave(unread func(inflight.Delivery))
}

// run pulls until intake is done. Then it processes the messages that the client still holds, until drainCtx ends.
// Finally, it closes out.
func (s *source) run(intake context.Context) (err error) {
	defer s.out.Close()
	if s.isolated != nil {
		s.isolated.Begin(intake)
		defer s.isolated.Leave(s.unread)
		defer func() {
			if !streams.Ended(err) && !streams.Ended(context.Cause(intake)) {
				err = errors.Join(err, s.isolated.Play(s.drainCtx)) // finish the received deliveries
			}
		}()
	}
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
		s.occupied.Store(true) // cleared only during a fetch
		defer s.occupied.Store(false)
		return s.isolated.Run(intake)
	}
	err := s.prefetch(intake)
	if s.mustIsolate() {
		s.log.Info("payloads come that were delivered before; they are tried apart from others")
		return nil // the pull was ended to switch to quarantine
	}
	return err
}

// mustIsolate reports whether the source must pull through quarantine.
func (s *source) mustIsolate() bool { return s.isolated != nil && s.isolated.IsDue() }

// prefetch runs one pull until the pull fails, intake is done, or the source must switch to quarantine.
func (s *source) prefetch(intake context.Context) error {
	messages, err := pull.Open(s.nc, s.request())
	if err != nil {
		return err
	}
	defer messages.Stop()
	// A drained pull returns the received messages and ends. If the connection is down, the pull ends late, so drainCtx
	// bounds the wait. The client loses messages that the server sends before it processes the unsubscription. The
	// server redelivers these messages at once.
	stopping := context.AfterFunc(intake, messages.Drain)
	defer stopping()
	var failed error
	ending := false
	for {
		msg, err := messages.Next(s.drainCtx)
		switch {
		case err == nil:
			s.take(msg)
			if !ending && s.mustIsolate() {
				ending = true
				messages.Drain()
			}
		case failed != nil || s.drainCtx.Err() != nil || errors.Is(err, pull.ErrEnded):
			for msg := range messages.Rest() { // process the received messages, or give them back if drainCtx has ended
				s.take(msg)
			}
			return cmp.Or(failed, err)
		default:
			failed = err
			messages.Drain()
		}
	}
}

func (s *source) request() pull.Request {
	info := s.consumer.CachedInfo()
	return pull.Request{
		API: s.api, Stream: info.Stream, Consumer: info.Name, Messages: s.size.Messages, Limit: s.limit,
		Expires: pull.BeatsPerRequest * s.size.Beat, Heartbeat: s.size.Beat,
	}
}

// take queues one message, or sets it aside for quarantine. Even after the end of the pull, take processes messages
// until drainCtx ends, because a message that is given back counts as a second delivery.
func (s *source) take(msg *pull.Message) {
	s.occupied.Store(true)
	defer s.occupied.Store(false)
	d, ok := s.receive(msg, s.mustIsolate())
	switch {
	case !ok:
	case d.Level > 0 && s.isolated != nil:
		s.isolated.SetAside(d)
	default:
		s.HandOn(d)
	}
}

// receive converts a message to a delivery and reports whether it must be processed. After drainCtx has ended, it
// passes the delivery to unread. It waits for memory unless mustNotWait is set. The wait could deadlock if deliveries
// are set aside, because they hold memory until the source continues.
func (s *source) receive(msg *pull.Message, mustNotWait bool) (d inflight.Delivery, ok bool) {
	d, err := inflight.NewDelivery(msg, time.Now())
	if err != nil {
		s.log.Error("message ignored", "error", err)
		return d, false
	}
	if s.drainCtx.Err() != nil {
		s.unread(d)
		return d, false
	}
	if mustNotWait {
		s.force(&d)
	} else if !s.hold(s.drainCtx, &d) {
		s.unread(d)
		return d, false
	}
	s.observer.Pending(d.Pending)
	if d.NumDelivered > 1 {
		s.observer.Redelivered()
	}
	return d, s.admit(&d)
}

// HandOn implements quarantine.Intake. It queues a delivery, or passes it to unread if drainCtx ends first.
func (s *source) HandOn(d inflight.Delivery) {
	if !s.out.Put(s.drainCtx, d) {
		s.unread(d)
	}
}

// recreateWait is the pause before each check of the consumer after a failed pull.
const recreateWait = 250 * time.Millisecond

// awaitConsumer waits until the consumer exists, the connection is permanently closed, or ctx is done. The server does
// not answer pulls from a consumer that does not exist.
func (s *source) awaitConsumer(ctx context.Context) {
	logged := false
	for retry.Sleep(ctx, recreateWait) {
		_, err := s.consumer.Info(ctx)
		if err == nil {
			s.size.Max = s.consumer.CachedInfo().Config.MaxRequestMaxBytes
			s.limit = s.size.Limit(s.nc) // the consumer's byte limit may have changed
		}
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
