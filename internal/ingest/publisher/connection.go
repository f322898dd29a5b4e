package publisher

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
)

const (
	// windowSize is the maximum number of unacknowledged publishes on one connection. It replaces the client library's window, in
	// which a waiting publish fails after a while.
	windowSize = 4096

	// bytesPerPlace is the number of bytes per place in the window. A large message takes several places, so at most 64 MiB are in
	// flight. The server refuses messages beyond 128 MiB in a stream's queue.
	bytesPerPlace = 64 << 20 / windowSize
)

// connection is one connection and its publish window.
type connection struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	batches *fastBatches
	window  chan struct{} // one token per occupied place
	// gate lets only one goroutine at a time take places, because two goroutines with some places each could deadlock.
	gate chan struct{}

	mu      sync.Mutex
	waiting map[*nats.Msg]int // number of places that each message occupies
}

// newConnection returns a connection on nc. A publish fails if its acknowledgement takes longer than timeout.
func newConnection(api jsapi.API, nc *nats.Conn, timeout time.Duration) (*connection, error) {
	l := &connection{
		nc:      nc,
		batches: newFastBatches(nc),
		window:  make(chan struct{}, windowSize),
		gate:    make(chan struct{}, 1),
		waiting: make(map[*nats.Msg]int, windowSize),
	}
	// Handlers free the places when the server's answer arrives, even if no goroutine waits for the answer. Otherwise a caller
	// that publishes more messages than the window holds would deadlock.
	var err error
	l.js, err = api.New(nc,
		jetstream.WithPublishAsyncMaxPending(2*windowSize), // never reached: the window is smaller
		jetstream.WithPublishAsyncTimeout(timeout),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, m *nats.Msg, _ *jetstream.PubAck) { l.leave(m) }),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, _ error) { l.leave(m) }))
	return l, err
}

// places returns the number of places in the window that m takes.
func places(m *nats.Msg) int {
	return min(1+len(m.Data)/bytesPerPlace, windowSize)
}

// enter waits for places in the window and takes them for m. It reports false if ctx ends first.
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

// leave frees m's places. If the connection breaks during a publish, the client may report the error twice, from the call and
// through a handler. The second call of leave does nothing.
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

// sending is a message that was sent, or the error that prevented it.
type sending struct {
	ack jetstream.PubAckFuture
	err error // error if the message was not sent
}

// send publishes m once the window has space. Each call needs a new m, because the window identifies messages by their address.
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

// wait waits for the server's answer. The Answer has an error if the message isn't stored, or if ctx ends first.
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
	case ack := <-s.ack.Ok(): // the answer had arrived before ctx ended
		return Answer{Duplicate: ack.Duplicate}
	default:
		return Answer{Err: ctx.Err()}
	}
}
