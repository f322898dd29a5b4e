package publisher

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// fastBatch is one fast batch on its way to the server. It is used once.
type fastBatch struct {
	conn       *connection
	publisher  jetstreamext.FastPublisher
	reconnects uint64     // of the connection, before it began
	trouble    chan error // the first thing that the server said beside its answers
	sent       nats.Msg   // as the publisher has it, which writes into it
	pending    *pendingClose
}

// newFastBatch prepares a batch on l. Every answer of the server may take timeout.
func newFastBatch(l *connection, timeout time.Duration, rest *pendingClose) (*fastBatch, error) {
	f := &fastBatch{conn: l, reconnects: l.nc.Stats().Reconnects, trouble: make(chan error, 1), pending: rest}
	var err error
	f.publisher, err = jetstreamext.NewFastPublisher(l.js,
		// So many that the publisher never waits for one in the middle of a batch, where neither a context nor
		// bad news would end the wait. The size of a batch bounds what is on its way.
		jetstreamext.FastPublishFlowControl{Flow: math.MaxUint16, MaxOutstandingAcks: math.MaxUint16, AckTimeout: timeout},
		jetstreamext.WithFastPublisherErrorHandler(f.failed))
	return f, err
}

// failed keeps what the publisher has no place for: gaps, and messages that were refused.
func (f *fastBatch) failed(err error) {
	select {
	case f.trouble <- err:
	default:
	}
}

// load makes the publisher's message of m, which is not written to.
func (f *fastBatch) load(m *nats.Msg) *nats.Msg {
	f.sent = nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
	return &f.sent
}

// publish stores msgs, three or more. It returns nil only if all of them are stored.
func (f *fastBatch) publish(ctx context.Context, msgs []*nats.Msg) error {
	if err := f.begin(ctx, msgs[0]); err != nil {
		return fmt.Errorf("the first message of a batch of %d: %w", len(msgs), err)
	}
	err := f.finish(ctx, msgs)
	if err != nil {
		f.pending.close(f.publisher)
	}
	return err
}

// begin sends the first message and waits until the server has taken the batch on. The publisher waits for that
// without a context and, when the server refuses, to the end of its patience; so the wait is left to a goroutine
// that ends with that patience, and has a copy of the message for as long.
func (f *fastBatch) begin(ctx context.Context, m *nats.Msg) error {
	first := &nats.Msg{Subject: m.Subject, Header: m.Header, Data: slices.Clone(m.Data)}
	begun, left := make(chan error), make(chan struct{})
	go func() {
		_, err := f.publisher.AddMsg(first)
		select {
		case begun <- err:
		case <-left:
			f.pending.close(f.publisher)
		}
	}()
	select {
	case err := <-begun:
		return err
	case err := <-f.trouble:
		close(left)
		return err
	case <-ctx.Done():
		close(left)
		return ctx.Err()
	}
}

// finish sends the other messages, and waits for the server's word on all.
func (f *fastBatch) finish(ctx context.Context, msgs []*nats.Msg) error {
	last := len(msgs) - 1
	for i, m := range msgs[1:last] {
		if late(ctx) {
			return fmt.Errorf("message %d of a batch of %d: %w", i+2, len(msgs), context.DeadlineExceeded)
		}
		if _, err := f.publisher.AddMsg(f.load(m)); err != nil {
			return fmt.Errorf("message %d of a batch of %d: %w", i+2, len(msgs), f.reason(err))
		}
	}
	if late(ctx) {
		return fmt.Errorf("the commit of a batch of %d: %w", len(msgs), context.DeadlineExceeded)
	}
	ack, err := f.publisher.CommitMsg(ctx, f.load(msgs[last]))
	if err = f.reason(err); err != nil {
		return fmt.Errorf("the commit of a batch of %d: %w", len(msgs), err)
	}
	return f.check(ack, len(msgs))
}

// reason is why a batch failed of which the publisher says err; nil if neither it nor hear knows anything. What was
// heard comes first: it is the cause, and the publisher often says only that the server has closed the batch.
func (f *fastBatch) reason(err error) error {
	select {
	case cause := <-f.trouble:
		return errors.Join(cause, err)
	default:
		return err
	}
}

// check decides whether an acknowledgement is for n messages that are stored.
//
// Sequence 0 says that the stream knows the id of every one of them. Where it has replicas that can be a message
// that is still on its way to them, and that the next leader might not have: only the way of single messages tells
// the two apart. And the server says once, beside the acknowledgement, that it could not store a message: if the
// connection was away meanwhile, that may have been lost.
func (f *fastBatch) check(ack *jetstreamext.BatchAck, n int) error {
	switch {
	case ack.BatchSize != uint64(n):
		return fmt.Errorf("the server confirms %d of a batch of %d", ack.BatchSize, n)
	case ack.Sequence == 0:
		return fmt.Errorf("%w: all %d messages", errKnown, n)
	case f.conn.nc.Stats().Reconnects != f.reconnects:
		return fmt.Errorf("the connection was lost during a batch of %d", n)
	}
	return nil
}

// errKnown says that the stream knows every message of a batch.
var errKnown = errors.New("the stream has had it before")

// pendingClose is publishers that could not be closed: they hold a subscription until they are, and with the connection
// down closing fails. There is at most one for each batch that was under way when it went down.
type pendingClose struct {
	mu   sync.Mutex
	left []jetstreamext.FastPublisher
}

// close closes a publisher, or keeps it to be closed later. It must not be in use any more.
func (l *pendingClose) close(p jetstreamext.FastPublisher) {
	if !closed(p) {
		l.mu.Lock()
		l.left = append(l.left, p)
		l.mu.Unlock()
	}
}

// retry closes what was left.
func (l *pendingClose) retry() {
	l.mu.Lock()
	l.left = slices.DeleteFunc(l.left, closed)
	l.mu.Unlock()
}

// closed closes a publisher without waiting for the server, and says whether it is closed.
func closed(p jetstreamext.FastPublisher) bool {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := p.Close(now)
	return err == nil || p.IsClosed()
}
