package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// source pulls continuously from the consumer and hands deliveries on one by one. It pulls more only as they
// are taken, so what waits in the client is bounded: by messages, and for each pull request by bytes.
type source struct {
	consumer jetstream.Consumer
	limit    pullLimit
	admit    func(context.Context, *delivery) bool // false: settled otherwise, not to be processed
	out      chan delivery
	log      *slog.Logger
	observer Observer
}

// pullLimit bounds what one pull request brings.
type pullLimit struct {
	messages int
	bytes    int // at least the largest message, or the consumer stalls
}

const (
	// pullBytes is what a pull request brings at most, if the largest message is smaller. The server cuts
	// a client off as a slow consumer that has more than 64 MiB on the way; 4 to 8 MiB ran well.
	pullBytes = 4 << 20

	// maxPullMessages bounds the client's queue of small messages.
	maxPullMessages = 8192

	// heartbeat is how often the server says that a pull is still alive; after two that did not come
	// the pull is made anew.
	heartbeat = 5 * time.Second

	// recreateWait is the pause before a pull that failed is made anew.
	recreateWait = 250 * time.Millisecond
)

// newPullLimit is the limit for a server that takes messages of maxPayload bytes.
func newPullLimit(maxPayload int64) pullLimit {
	const subjects = 64 << 10 // the server counts subject and reply subject too
	return pullLimit{messages: maxPullMessages, bytes: max(pullBytes, int(maxPayload)+subjects)}
}

// run pulls until ctx is done, then gives back what the client still holds. It closes out.
func (s *source) run(ctx context.Context) error {
	defer close(s.out)
	for ctx.Err() == nil {
		err := s.pull(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, jetstream.ErrConnectionClosed):
			return fmt.Errorf("pulling from the consumer: %w", err)
		case errors.Is(err, jetstream.ErrConsumerDeleted), errors.Is(err, jetstream.ErrConsumerNotFound):
			s.log.Error("the consumer is gone; waiting for it to come back (create it again, or restart with "+
				"MILLRACE_PROVISION=true)", "error", err)
		default:
			s.log.Warn("pull interrupted, starting it again", "error", err)
		}
		select {
		case <-time.After(recreateWait):
		case <-ctx.Done():
		}
	}
	return nil
}

// pull runs one pull subscription until it fails or ctx is done.
func (s *source) pull(ctx context.Context) error {
	messages, err := s.consumer.Messages(
		jetstream.PullMaxMessagesWithBytesLimit(s.limit.messages, s.limit.bytes),
		jetstream.PullExpiry(3*heartbeat),
		jetstream.PullHeartbeat(heartbeat),
	)
	if err != nil {
		return err
	}
	stopping := context.AfterFunc(ctx, messages.Drain) // Next then gives what is buffered, and ends
	defer stopping()
	for {
		msg, err := messages.Next()
		if err != nil {
			// Not Drain: who reads what would be buffered is gone. The server delivers it again.
			messages.Stop()
			return err
		}
		s.take(ctx, msg)
	}
}

// take hands one message on, or gives it back where nobody takes it any more.
func (s *source) take(ctx context.Context, msg jetstream.Msg) {
	d, err := newDelivery(msg, time.Now())
	if err != nil {
		s.log.Error("message ignored", "error", err)
		return
	}
	if ctx.Err() != nil {
		s.giveBack(&d)
		return
	}
	s.observer.Pending(d.pending)
	if d.deliveries > 1 {
		s.observer.Redelivered()
	}
	if !s.admit(ctx, &d) {
		return
	}
	select {
	case s.out <- d:
	case <-ctx.Done():
		s.giveBack(&d)
	}
}

// giveBack lets another worker have the message at once.
func (s *source) giveBack(d *delivery) {
	if err := d.msg.Nak(); err != nil {
		s.log.Warn("could not give a message back; it is delivered again after AckWait", "sequence", d.sequence, "error", err)
		return
	}
	s.observer.Settled(Nacked, len(d.msg.Data()), 0, time.Since(d.received), 0)
}
