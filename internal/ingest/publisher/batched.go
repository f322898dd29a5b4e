package publisher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"millrace/internal/ingest/jsapi"
)

// Windowed publishes each message separately, with many messages in flight within a publish window. A missing acknowledgement is
// an error. The caller decides whether to publish again.
type Windowed struct {
	conns   []*connection
	turn    atomic.Uint32
	timeout time.Duration
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
		l, err := newConnection(api, nc, timeout)
		if err != nil {
			return nil, err
		}
		w.conns = append(w.conns, l)
	}
	return w, nil
}

// next returns the next connection, round-robin. It skips connections that are down, unless all are down.
func (w *Windowed) next() *connection {
	first := w.turn.Add(1)
	for i := range w.conns {
		if l := w.conns[(int(first)+i)%len(w.conns)]; l.nc.IsConnected() {
			return l
		}
	}
	return w.conns[int(first)%len(w.conns)]
}

// Publish implements Publisher. Messages beyond the window wait for space in it.
func (w *Windowed) Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	l := w.next()
	// The window identifies messages by their address, and the caller may publish a message again while the client still has the
	// first copy.
	copies := make([]nats.Msg, len(msgs))
	sent := make([]sending, len(msgs))
	for i, m := range msgs {
		copies[i] = nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
		sent[i] = l.send(ctx, &copies[i])
	}
	for i := range sent {
		dst = append(dst, sent[i].wait(ctx))
	}
	return dst
}

const (
	// maxMessages and maxBytes bound one batch. Together with maxAtOnce, they bound a worker's messages in the stream's queue
	// at the server. The server drops messages beyond 100,000 messages or 128 MiB in that queue. If a batch fails because of a
	// dropped message, its messages are published one by one.
	maxMessages = 4096
	maxBytes    = 4 << 20

	// batchesAtOnce is the maximum number of batches in flight per connection, and maxAtOnce the maximum over all
	// connections.
	batchesAtOnce = 8
	maxAtOnce     = 24
)

// Batched stores the messages of a Publish call as fast batches, with one acknowledgement per batch. If the server doesn't confirm
// a whole batch, Windowed publishes its messages again, and the server drops duplicates by their ids. Answer.Duplicate is never
// set for a batch's messages, because the server doesn't report duplicates in a batch.
type Batched struct {
	singles *Windowed
	places  chan struct{} // a token for each batch in flight
	trouble func(error)
}

// NewBatched returns a Batched over the connections of singles. singles also publishes the messages of failed batches. Batched
// calls trouble with the error of a failed batch, unless the messages or ctx caused the error. trouble may be nil. It is called
// from several goroutines and must not block.
func NewBatched(singles *Windowed, trouble func(error)) *Batched {
	return &Batched{singles: singles, trouble: trouble, places: make(chan struct{}, min(batchesAtOnce*len(singles.conns), maxAtOnce))}
}

// Publish implements Publisher. It splits msgs into batches.
func (b *Batched) Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	for len(msgs) > 0 {
		n := cut(msgs)
		dst = b.putBatch(ctx, msgs[:n], dst)
		msgs = msgs[n:]
	}
	return dst
}

// cut returns the number of messages in the next batch, which is at least one.
func cut(msgs []*nats.Msg) int {
	bytes := 0
	for i, m := range msgs {
		bytes += len(m.Data)
		if i > 0 && (i == maxMessages || bytes > maxBytes) {
			return i
		}
	}
	return len(msgs)
}

// putBatch stores msgs, which must fit into one batch, and appends the answers to dst.
func (b *Batched) putBatch(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	if len(msgs) == 1 {
		return b.singles.Publish(ctx, msgs, dst)
	}
	if err := b.commit(ctx, msgs); err != nil {
		if b.trouble != nil && ctx.Err() == nil && !errors.Is(err, errKnown) && !Unstorable(err) {
			b.trouble(err)
		}
		return b.singles.Publish(ctx, msgs, dst)
	}
	for range msgs {
		dst = append(dst, Answer{})
	}
	return dst
}

// errDisconnected is the error of a batch that isn't sent because its connection is down.
var errDisconnected = errors.New("no connection to begin a batch on")

// commit stores msgs as one batch. It returns nil only if the server has confirmed all messages.
func (b *Batched) commit(ctx context.Context, msgs []*nats.Msg) error {
	for _, m := range msgs {
		if !fits(m) {
			return errLongSubject
		}
	}
	select {
	case b.places <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.places }()
	if late(ctx) {
		return context.DeadlineExceeded
	}
	l := b.singles.next()
	if !l.nc.IsConnected() {
		return errDisconnected
	}
	_, err := b.singles.storeFast(ctx, l, FastBatch{Messages: msgs})
	return err
}

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

// Store publishes one message and returns its stream sequence. After an error, the message may or may not be stored.
func (w *Windowed) Store(ctx context.Context, m *nats.Msg) (sequence uint64, err error) {
	if !fits(m) {
		return 0, errLongSubject
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	ack, err := w.next().js.PublishMsg(ctx, m)
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
	for _, m := range b.Messages {
		if !fits(m) {
			return 0, errLongSubject
		}
	}
	l := w.next()
	if !l.nc.IsConnected() {
		return 0, errDisconnected
	}
	return w.storeFast(ctx, l, b)
}

func (w *Windowed) storeFast(ctx context.Context, l *connection, b FastBatch) (sequence uint64, err error) {
	f, err := l.batches.begin(b.ID, len(b.Messages))
	if err != nil {
		return 0, err
	}
	return f.publish(ctx, b, w.timeout)
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
	for _, m := range msgs {
		if !fits(m) {
			return 0, errLongSubject
		}
	}
	l := w.next()
	if !l.nc.IsConnected() {
		return 0, errDisconnected
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	flow := jetstreamext.BatchFlowControl{AckTimeout: w.timeout}
	if checked {
		flow.AckFirst, flow.AckEvery = true, 1
	}
	ack, err := jetstreamext.PublishMsgBatch(ctx, l.js, msgs, flow)
	if err != nil {
		return 0, fmt.Errorf("an atomic batch of %d: %w", len(msgs), err)
	}
	return ack.Sequence, nil
}
