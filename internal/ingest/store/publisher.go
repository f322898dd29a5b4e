// Package store stores messages in JetStream streams.
//
// A Publisher reports the outcome of each message. Windowed publishes every message separately and waits for each acknowledgement,
// which any server supports. Following publishes many messages as one fast batch with one acknowledgement while the stream allows
// that. Fast batches are several times faster for small messages. If a batch fails, its messages are published separately under the
// same ids, and the stream keeps one copy of each.
//
// A Chain stores the results and dead letters of exclusive delivery exactly once, with commit markers. It accesses the server
// through Markers. Stream implements Markers, and the model test of package lease simulates it. adr/0046 gives the reasons for the
// design.
//
// Start reading at Publisher and Follow for messages, and at OpenChains and Chain.Commit for batches with markers.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"millrace/internal/ingest/jsapi"
)

// Publisher stores messages in streams and reports the outcome of each. It is safe for concurrent use.
type Publisher interface {
	// Publish stores msgs, in their order unless a publish fails. It returns when each message has an answer or ctx has ended. It
	// appends one answer per message to dst, in the order of msgs. Every message must have a Nats-Msg-Id, because it may be sent
	// twice. Publish doesn't modify the messages, and the caller still owns them. After the end of ctx, the client may read the
	// messages until the acknowledgement timeout. Publish sends nothing after the deadline of ctx, even if ctx's timer is late
	// after a stop of the process.
	Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) (answers []Answer)
}

// Answer is the outcome of one message.
type Answer struct {
	Duplicate bool  // whether the server reported that the stream already had the message's id
	Err       error // nil if the message is stored; otherwise it may or may not be stored
}

// Timeout is the default time limit for the server's answer to a message.
const Timeout = 10 * time.Second

// JetStream's error codes for a message that no retry can store (nats-server's errors.json).
const (
	codeMessageTooLarge = 10054 // larger than the stream's max_msg_size
	codeHeaderTooLarge  = 10097 // header larger than 64 KiB
)

// MaxSubject is the maximum length of a published message's subject, in bytes. A client permanently loses its connection if it
// sends a protocol line longer than the server's max_control_line. A server doesn't report this limit, whose default is 4096. An
// input's subject may exceed MaxSubject, because the input's line has no reply subject and a shorter prefix.
const MaxSubject = 4096 - 128

var errLongSubject = fmt.Errorf("its subject is longer than %d bytes", MaxSubject)

func isTooLong(m *nats.Msg) bool { return len(m.Subject) > MaxSubject }

// Unstorable reports whether err means that no retry can store the message.
func Unstorable(err error) bool {
	for _, own := range []error{errLongSubject, nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrHeadersNotSupported} {
		if errors.Is(err, own) {
			return true
		}
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == codeMessageTooLarge || api.ErrorCode == codeHeaderTooLarge)
}

// MapSubject replaces the first token of subject with prefix. For example, with prefix "results",
// "ingest.web.en" becomes "results.web.en", and "ingest" becomes "results".
func MapSubject(prefix, subject string) string {
	if dot := strings.IndexByte(subject, '.'); dot >= 0 {
		return prefix + subject[dot:]
	}
	return prefix
}

const (
	// lateMax is the maximum sum of two delays. One is the delay of a published result on its way to the stream. The
	// other is the delay of a delivered input on its way to this worker.
	lateMax = 20 * time.Second

	// latePart limits lateMax to half of a short duplicate window.
	latePart = 2

	// SafeWindow is the shortest duplicate window for which PublishFor subtracts all of lateMax.
	SafeWindow = latePart * lateMax
)

// PublishFor returns the maximum time from an input's clearance to the publish of its result, given the stream's
// duplicate window. It is the window minus 20 s, or half of the window if that is longer. It is at least a second,
// because otherwise nothing could be published.
func PublishFor(window time.Duration) time.Duration {
	return max(window-min(lateMax, window/latePart), time.Second)
}

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

// Close ends the subscriptions to answers. Nothing may be published afterwards.
func (w *Windowed) Close() {
	for _, c := range w.conns {
		c.js.CleanupPublisher()
		_ = c.batches.sub.Unsubscribe() // fails only if the connection is closed
	}
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

// FollowOptions configures Follow. Several goroutines call its functions, which must not block.
type FollowOptions struct {
	Stream  string           // the stream that stores the messages
	Changed func(Capability) // called after a query that finds a changed capability, and by Follow

	// Trouble is called with the error of a failed batch, unless the messages or their ctx caused the error.
	Trouble func(error)

	Read func(info *jetstream.StreamInfo, asked time.Time) // called after each query with the stream's info and the time of the query
}

const (
	// askEvery is the normal interval between queries of the stream's settings.
	askEvery = 30 * time.Second

	// askDoubtful is the interval while the stream is missing, after a failed query and after a failed batch. Following publishes
	// no batches until the next successful query.
	askDoubtful = time.Second

	// askPatience is the time limit for one query.
	askPatience = 2 * time.Second

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

// Following publishes fast batches while its stream accepts them, and single messages otherwise. It queries the stream at
// intervals and after a failed batch, because the stream may have been changed or recreated.
//
// If the server doesn't confirm a whole batch, Following publishes its messages again one by one, and the server drops duplicates
// by their ids. Answer.Duplicate is never set for a batch's messages, because the server doesn't report duplicates in a batch.
type Following struct {
	singles *Windowed     // also publishes the messages of failed batches
	batches chan struct{} // a token for each batch in flight
	o       FollowOptions

	every, doubtful time.Duration // askEvery and askDoubtful
	asking          sync.Mutex    // held during a query; goroutines only try to lock it
	doubt           atomic.Bool   // whether the last query failed or found no stream, or a batch failed since
	last            atomic.Pointer[finding]
}

// finding is the result of a query.
type finding struct {
	at         time.Time
	capability Capability
}

// Follow queries the stream, and returns a publisher over the connections of singles. It fails if the query fails. A missing stream
// is not an error.
func Follow(ctx context.Context, singles *Windowed, o FollowOptions) (*Following, error) {
	f := newFollowing(singles, o)
	return f, f.ask(ctx)
}

func newFollowing(singles *Windowed, o FollowOptions) *Following {
	f := &Following{
		singles: singles, batches: make(chan struct{}, min(batchesAtOnce*len(singles.conns), maxAtOnce)), o: o,
		every: askEvery, doubtful: askDoubtful,
	}
	f.last.Store(&finding{})
	return f
}

// Publish implements Publisher.
func (f *Following) Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	f.Refresh(ctx, false)
	if f.doubt.Load() || !f.last.Load().capability.Batches {
		return f.singles.Publish(ctx, msgs, dst)
	}
	return f.publishBatches(ctx, msgs, dst)
}

func (f *Following) publishBatches(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	for len(msgs) > 0 {
		n := cut(msgs)
		dst = f.publishBatch(ctx, msgs[:n], dst)
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

// publishBatch stores msgs, which must fit into one batch, and appends the answers to dst.
func (f *Following) publishBatch(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	if len(msgs) > 1 {
		err := f.storeBatch(ctx, msgs)
		if err == nil {
			return append(dst, make([]Answer, len(msgs))...)
		}
		if ctx.Err() == nil && !errors.Is(err, errKnown) && !Unstorable(err) {
			f.doubt.Store(true)
			f.o.Trouble(err)
		}
	}
	return f.singles.Publish(ctx, msgs, dst)
}

// storeBatch stores msgs as one batch. It returns nil only if the server has confirmed all messages.
func (f *Following) storeBatch(ctx context.Context, msgs []*nats.Msg) error {
	select {
	case f.batches <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-f.batches }()
	_, err := f.singles.StoreFast(ctx, FastBatch{Messages: msgs})
	return err
}

// Refresh queries the stream if the last query is older than askEvery, or than askDoubtful after a doubt. Only one of several
// concurrent callers makes the query. If doubt is set, Following publishes no batches until the next query.
func (f *Following) Refresh(ctx context.Context, doubt bool) {
	if doubt {
		f.doubt.Store(true)
	}
	every := f.every
	if f.doubt.Load() {
		every = f.doubtful
	}
	if time.Since(f.last.Load().at) >= every && f.asking.TryLock() {
		defer f.asking.Unlock()
		ctx, cancel := context.WithTimeout(ctx, askPatience)
		defer cancel()
		_ = f.ask(ctx) // sets doubt
	}
}

// ask queries the stream. If the query fails, it keeps the last known capability.
func (f *Following) ask(ctx context.Context) error {
	f.doubt.Store(false) // a batch that fails during the query sets doubt again
	before, asked := f.last.Load().capability, time.Now()
	found, info, err := ask(ctx, f.singles.next().js, f.o.Stream)
	if err != nil {
		found = before
	}
	if info != nil {
		f.o.Read(info, asked)
	} else {
		f.doubt.Store(true)
	}
	f.last.Store(&finding{at: time.Now(), capability: found})
	if found != before {
		f.o.Changed(found)
	}
	return err
}
