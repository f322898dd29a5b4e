package ingest

import (
	"context"
	"errors"
	"sync"
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
	window chan struct{} // a token for each message on its way

	mu      sync.Mutex
	waiting map[*nats.Msg]struct{} // the messages that hold those tokens
}

// newPublisher makes a publisher with a JetStream context of its own on nc.
func newPublisher(nc *nats.Conn) (*publisher, error) { return newPatientPublisher(nc, publishTimeout) }

// newPatientPublisher is newPublisher where an acknowledgement counts as lost after timeout.
func newPatientPublisher(nc *nats.Conn, timeout time.Duration) (*publisher, error) {
	p := &publisher{
		window:  make(chan struct{}, publishWindow),
		waiting: make(map[*nats.Msg]struct{}, publishWindow),
	}
	// A place in the window is free again when the server has answered, not when somebody waits for the
	// answer: who sends a batch larger than the window would otherwise wait for himself.
	var err error
	p.js, err = jetstream.New(nc,
		jetstream.WithPublishAsyncMaxPending(2*publishWindow), // never reached: the window is smaller
		jetstream.WithPublishAsyncTimeout(timeout),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, m *nats.Msg, _ *jetstream.PubAck) { p.leave(m) }),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, _ error) { p.leave(m) }))
	return p, err
}

// enter takes a place in the window for m, and says whether there was one before ctx ended.
func (p *publisher) enter(ctx context.Context, m *nats.Msg) bool {
	select {
	case p.window <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	p.mu.Lock()
	p.waiting[m] = struct{}{}
	p.mu.Unlock()
	return true
}

// leave gives m's place back. The client may answer a publish twice, once with an error from the call and once
// through a handler, when the connection goes in between; the second time does nothing.
func (p *publisher) leave(m *nats.Msg) {
	p.mu.Lock()
	_, held := p.waiting[m]
	delete(p.waiting, m)
	p.mu.Unlock()
	if held {
		<-p.window
	}
}

// pending is a message on its way to the server.
type pending struct {
	ack jetstream.PubAckFuture
	err error // why it was not sent
}

// send starts storing m, once there is room in the window. m must not have been sent before: the window knows
// messages by their address.
func (p *publisher) send(ctx context.Context, m *nats.Msg) pending {
	if !p.enter(ctx, m) {
		return pending{err: ctx.Err()}
	}
	ack, err := p.js.PublishMsgAsync(m)
	if err != nil {
		p.leave(m)
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
	}
	select {
	case ack := <-s.ack.Ok(): // it had come already
		return ack.Duplicate, nil
	default:
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
