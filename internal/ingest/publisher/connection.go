package publisher

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// windowSize is how many publishes of one connection may wait for their acknowledgement at once. The line holds
	// the window itself: the client gives up on a publish that waits in its own.
	windowSize = 4096

	// bytesPerPlace makes a large message take several places of the window, so that no more than 64 MiB are on
	// their way: the server refuses what goes beyond 128 MiB in a stream's queue.
	bytesPerPlace = 64 << 20 / windowSize
)

// connection is one connection, and the window of what is on its way there.
type connection struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	window chan struct{} // a token for each place that is taken by a message on its way
	gate   chan struct{} // a token for who takes places: two who have some each could wait for ever

	mu      sync.Mutex
	waiting map[*nats.Msg]int // how many places each message has
}

// newConnection makes a line with a JetStream context of its own on nc, where an acknowledgement counts as lost after
// timeout.
func newConnection(nc *nats.Conn, timeout time.Duration) (*connection, error) {
	l := &connection{
		nc:      nc,
		window:  make(chan struct{}, windowSize),
		gate:    make(chan struct{}, 1),
		waiting: make(map[*nats.Msg]int, windowSize),
	}
	// A place in the window is free again when the server has answered, not when somebody waits for the
	// answer: who sends more than the window holds would otherwise wait for himself.
	var err error
	l.js, err = jetstream.New(nc,
		jetstream.WithPublishAsyncMaxPending(2*windowSize), // never reached: the window is smaller
		jetstream.WithPublishAsyncTimeout(timeout),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, m *nats.Msg, _ *jetstream.PubAck) { l.leave(m) }),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, _ error) { l.leave(m) }))
	return l, err
}

// places is how many places of the window m takes.
func places(m *nats.Msg) int {
	return min(1+len(m.Data)/bytesPerPlace, windowSize)
}

// enter takes places in the window for m, and says whether there were enough before ctx ended.
func (l *connection) enter(ctx context.Context, m *nats.Msg) bool {
	select {
	case l.gate <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-l.gate }()
	for taken := range places(m) {
		select {
		case l.window <- struct{}{}:
		case <-ctx.Done():
			l.free(taken)
			return false
		}
	}
	l.mu.Lock()
	l.waiting[m] = places(m)
	l.mu.Unlock()
	return true
}

// leave gives m's places back. The client may answer a publish twice, once with an error from the call and once
// through a handler, when the connection goes in between; the second time does nothing.
func (l *connection) leave(m *nats.Msg) {
	l.mu.Lock()
	held := l.waiting[m]
	delete(l.waiting, m)
	l.mu.Unlock()
	l.free(held)
}

func (l *connection) free(places int) {
	for range places {
		<-l.window
	}
}

// sending is a message on its way to the server.
type sending struct {
	ack jetstream.PubAckFuture
	err error // why it was not sent
}

// send starts storing m, once there is room in the window. m must not have been sent before: the window knows
// messages by their address.
func (l *connection) send(ctx context.Context, m *nats.Msg) sending {
	if !fits(m) {
		return sending{err: errLongSubject}
	}
	if !l.enter(ctx, m) {
		return sending{err: ctx.Err()}
	}
	if late(ctx) {
		l.leave(m)
		return sending{err: context.DeadlineExceeded}
	}
	ack, err := l.js.PublishMsgAsync(m)
	if err != nil {
		l.leave(m)
		return sending{err: err}
	}
	return sending{ack: ack}
}

// wait returns once the server has stored the message, or the reason why that is not known.
func (s sending) wait(ctx context.Context) Answer {
	if s.err != nil {
		return Answer{Err: s.err}
	}
	select {
	case ack := <-s.ack.Ok():
		return Answer{Duplicate: ack.Duplicate}
	case err := <-s.ack.Err():
		return Answer{Err: err}
	case <-ctx.Done():
	}
	select {
	case ack := <-s.ack.Ok(): // it had come already
		return Answer{Duplicate: ack.Duplicate}
	default:
		return Answer{Err: ctx.Err()}
	}
}
