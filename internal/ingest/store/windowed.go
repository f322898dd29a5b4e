package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
	"golang.org/x/sync/semaphore"

	"millrace/internal/ingest/jsapi"
)

// Windowed publishes each message separately, with many messages in flight within a publish window. A missing acknowledgement is
// an error. The caller decides whether to publish again.
type Windowed struct {
	conns   []*connection
	turn    atomic.Uint32
	timeout time.Duration
}

const (
	// windowSize is the number of places in a connection's publish window. The window replaces the client library's, in which a
	// waiting publish fails after a while.
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
	window  *semaphore.Weighted
}

// NewWindowed returns a Windowed that publishes to streams of api. Publish calls alternate between conns, which the caller still
// owns. A publish fails if its answer takes longer than timeout; 0 means Timeout. NewWindowed fails if conns is empty.
func NewWindowed(api jsapi.API, timeout time.Duration, conns ...*nats.Conn) (*Windowed, error) {
	if len(conns) == 0 {
		return nil, errors.New("publisher: no connection: give at least one")
	}
	if timeout <= 0 {
		timeout = Timeout
	}
	w := &Windowed{timeout: timeout}
	for _, nc := range conns {
		// The library's own limit is never reached, because the window is smaller.
		js, err := api.New(nc, jetstream.WithPublishAsyncMaxPending(2*windowSize), jetstream.WithPublishAsyncTimeout(timeout))
		if err != nil {
			return nil, err
		}
		batches, err := newFastBatches(nc)
		if err != nil {
			return nil, err
		}
		w.conns = append(w.conns, &connection{nc: nc, js: js, batches: batches, window: semaphore.NewWeighted(windowSize)})
	}
	return w, nil
}

// next returns the next connection, round-robin. It skips connections that are down, unless all are down.
func (w *Windowed) next() *connection {
	first := w.turn.Add(1)
	for i := range w.conns {
		if c := w.conns[(int(first)+i)%len(w.conns)]; c.nc.IsConnected() {
			return c
		}
	}
	return w.conns[int(first)%len(w.conns)]
}

// Publish implements Publisher. While the window is full, Publish waits for the answer to its oldest message. Only a call without
// messages in flight waits for the places of other calls, so two calls can't wait for each other.
func (w *Windowed) Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	c, answered := w.next(), 0
	sent := make([]sending, len(msgs))
	copies := make([]nats.Msg, len(msgs)) // the caller may change msgs while the client still has unanswered messages
	for i, m := range msgs {
		for answered < i && !c.window.TryAcquire(places(m)) {
			dst = append(dst, c.wait(ctx, &sent[answered]))
			answered++
		}
		copies[i] = nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
		sent[i] = c.send(ctx, &copies[i], answered < i)
	}
	for ; answered < len(sent); answered++ {
		dst = append(dst, c.wait(ctx, &sent[answered]))
	}
	if ctx.Err() != nil {
		go c.drain(sent)
	}
	return dst
}

// sending is a message that was sent, or the error that prevented it.
type sending struct {
	ack    jetstream.PubAckFuture
	places int64 // places in the window that the message takes; 0 once it is answered
	err    error // error if the message was not sent
}

// places returns the number of places in the window that m takes.
func places(m *nats.Msg) int64 {
	return int64(min(1+len(m.Data)/bytesPerPlace, windowSize))
}

// send publishes m. Unless entered is set, it first waits for m's places in the window.
func (c *connection) send(ctx context.Context, m *nats.Msg, entered bool) (s sending) {
	if !entered {
		if err := c.window.Acquire(ctx, places(m)); err != nil {
			return sending{err: err}
		}
	}
	s.places = places(m)
	switch {
	case isTooLong(m):
		s.err = errLongSubject
	case late(ctx):
		s.err = context.DeadlineExceeded
	default:
		s.ack, s.err = c.js.PublishMsgAsync(m)
	}
	if s.err != nil {
		c.free(&s)
	}
	return s
}

func (c *connection) free(s *sending) {
	c.window.Release(s.places)
	s.places = 0
}

// wait waits for the server's answer and frees the message's places. If ctx ends first, the message keeps its places.
func (c *connection) wait(ctx context.Context, s *sending) Answer {
	if s.err != nil {
		return Answer{Err: s.err}
	}
	ack, failed := s.ack.Ok(), s.ack.Err()
	ended := ctx.Done()
	if len(ack) > 0 {
		ended = nil // the answer arrived before ctx ended
	}
	select {
	case a := <-ack:
		c.free(s)
		return Answer{Duplicate: a.Duplicate}
	case err := <-failed:
		c.free(s)
		return Answer{Err: err}
	case <-ended:
		return Answer{Err: ctx.Err()}
	}
}

// drain waits for the missing answers of a Publish whose ctx has ended. The client gives up after the acknowledgement timeout.
func (c *connection) drain(sent []sending) {
	for i := range sent {
		if sent[i].places > 0 {
			c.wait(context.Background(), &sent[i])
		}
	}
}

// ready returns a connection for msgs. It returns an error if the deadline of ctx has passed, if a message can't be sent, or if
// all connections are down.
func (w *Windowed) ready(ctx context.Context, msgs ...*nats.Msg) (*connection, error) {
	if late(ctx) {
		return nil, context.DeadlineExceeded
	}
	if slices.ContainsFunc(msgs, isTooLong) {
		return nil, errLongSubject
	}
	c := w.next()
	if !c.nc.IsConnected() {
		return nil, errDisconnected
	}
	return c, nil
}

// errDisconnected is the error of a message or a batch that isn't sent because all connections are down.
var errDisconnected = errors.New("no connection to NATS")

// Store publishes one message and returns its stream sequence. After an error, the message may or may not be stored.
func (w *Windowed) Store(ctx context.Context, m *nats.Msg) (sequence uint64, err error) {
	c, err := w.ready(ctx, m)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	ack, err := c.js.PublishMsg(ctx, m)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// StoreFast publishes a fast batch, and returns the stream sequence of its last message. After an error, some messages may be
// stored. More may be stored later, until a batch with the same id ends this one.
//
// The server has only one open batch per id. If another batch with the id is open, the server ends that batch instead of storing
// the first message, and StoreFast fails with ErrBatchEnded. A batch of one message may also fail with ErrBatchStuck.
func (w *Windowed) StoreFast(ctx context.Context, b FastBatch) (sequence uint64, err error) {
	c, err := w.ready(ctx, b.Messages...)
	if err != nil {
		return 0, err
	}
	return c.batches.begin(b).publish(ctx, w.timeout)
}

// codeIncomplete is JetStream's error code for an atomic batch with missing messages.
const codeIncomplete jetstream.ErrorCode = 10176

// IncompleteBatch reports whether err means that the server did not accept all messages of an atomic batch.
func IncompleteBatch(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == codeIncomplete
}

// StoreAtomic publishes two or more messages as one atomic batch, and returns the stream sequence of the last message. The server
// stores all messages or none. StoreAtomic adds headers to the messages. After an error, the messages may or may not be stored. If
// checked is set, StoreAtomic waits for the server's answer to each message. Otherwise, a refused message may cause an error that
// only IncompleteBatch recognizes, without the server's reason.
func (w *Windowed) StoreAtomic(ctx context.Context, msgs []*nats.Msg, checked bool) (sequence uint64, err error) {
	c, err := w.ready(ctx, msgs...)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	flow := jetstreamext.BatchFlowControl{AckTimeout: w.timeout}
	if checked {
		flow.AckFirst, flow.AckEvery = true, 1
	}
	ack, err := jetstreamext.PublishMsgBatch(ctx, c.js, msgs, flow)
	if err != nil {
		return 0, fmt.Errorf("an atomic batch of %d: %w", len(msgs), err)
	}
	return ack.Sequence, nil
}
