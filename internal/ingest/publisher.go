package ingest

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// publishWindow is how many publishes may wait for their acknowledgement at once. The worker holds the
	// window itself: the client gives up on a publish that waits in its own.
	publishWindow = 4096

	// publishTimeout is how long an acknowledgement may take before the message is published again.
	publishTimeout = 10 * time.Second
)

// publisher stores messages, many at a time, within a window.
type publisher struct {
	js     jetstream.JetStream
	window chan struct{}
}

// newPublisher makes a publisher with a JetStream context of its own on nc.
func newPublisher(nc *nats.Conn) (*publisher, error) {
	p := &publisher{window: make(chan struct{}, publishWindow)}
	// A place in the window is free again when the server has answered, not when somebody waits for the
	// answer: who sends a batch larger than the window would otherwise wait for himself.
	answered := func() { <-p.window }
	var err error
	p.js, err = jetstream.New(nc,
		jetstream.WithPublishAsyncMaxPending(2*publishWindow), // never reached: the window is smaller
		jetstream.WithPublishAsyncTimeout(publishTimeout),
		jetstream.WithPublishAsyncAckHandler(func(jetstream.JetStream, *nats.Msg, *jetstream.PubAck) { answered() }),
		jetstream.WithPublishAsyncErrHandler(func(jetstream.JetStream, *nats.Msg, error) { answered() }))
	return p, err
}

// pending is a message on its way to the server.
type pending struct {
	ack jetstream.PubAckFuture
	err error // why it was not sent
}

// send starts storing m, once there is room in the window.
func (p *publisher) send(ctx context.Context, m *nats.Msg) pending {
	select {
	case p.window <- struct{}{}:
	case <-ctx.Done():
		return pending{err: ctx.Err()}
	}
	ack, err := p.js.PublishMsgAsync(m)
	if err != nil {
		<-p.window
		return pending{err: err}
	}
	return pending{ack: ack}
}

// wait returns once the server has stored the message, or the reason why that is not known. duplicate says
// that the stream had a message of the same id already.
func (p *publisher) wait(ctx context.Context, s pending) (duplicate bool, err error) {
	if s.err != nil {
		return false, s.err
	}
	select {
	case ack := <-s.ack.Ok():
		return ack.Duplicate, nil
	case err := <-s.ack.Err():
		return false, err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// JetStream's codes for a message that no retry can store (nats-server's errors.json).
const (
	codeMessageTooLarge = 10054 // larger than the stream's max_msg_size
	codeHeaderTooLarge  = 10097 // header larger than 64 KiB
)

// unstorable says that a message itself, not the server's state, keeps it from being stored.
func unstorable(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) || errors.Is(err, nats.ErrHeadersNotSupported) {
		return true
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == codeMessageTooLarge || api.ErrorCode == codeHeaderTooLarge)
}

// retryWait is the pause before the n-th attempt (from 1) to store what could not be stored.
func retryWait(n int) time.Duration {
	return min(50*time.Millisecond<<min(n-1, 6), 2*time.Second)
}

// sleep waits for d or the end of ctx, and says whether it waited for d.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
