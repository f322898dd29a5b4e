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

// fastBatch is one fast batch in flight to the server. It is used once.
type fastBatch struct {
	conn       *connection
	publisher  jetstreamext.FastPublisher
	reconnects uint64     // of the connection, before the batch began
	trouble    chan error // the first error that the server reported outside its answers
	sent       nats.Msg   // the publisher's copy of the message, which it writes into
	pending    *pendingClose
}

// newFastBatch prepares a batch on l. timeout applies to each answer of the server.
func newFastBatch(l *connection, timeout time.Duration, rest *pendingClose) (*fastBatch, error) {
	f := &fastBatch{conn: l, reconnects: l.nc.Stats().Reconnects, trouble: make(chan error, 1), pending: rest}
	var err error
	f.publisher, err = jetstreamext.NewFastPublisher(l.js,
		// The limits are so high that the publisher never waits for an answer in the middle of a batch. Neither a
		// context nor an error would end that wait. The size of a batch bounds the messages in flight.
		jetstreamext.FastPublishFlowControl{Flow: math.MaxUint16, MaxOutstandingAcks: math.MaxUint16, AckTimeout: timeout},
		jetstreamext.WithFastPublisherErrorHandler(f.failed))
	return f, err
}

// failed stores errors that the publisher can't return: gaps, and messages that were refused.
func (f *fastBatch) failed(err error) {
	select {
	case f.trouble <- err:
	default:
	}
}

// load copies m for the publisher. m itself isn't changed.
func (f *fastBatch) load(m *nats.Msg) *nats.Msg {
	f.sent = nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
	return &f.sent
}

// publish stores msgs, two or more, and returns the stream sequence of the last one. It returns no error only if all of them are stored.
func (f *fastBatch) publish(ctx context.Context, msgs []*nats.Msg) (sequence uint64, err error) {
	if err := f.begin(ctx, msgs[0]); err != nil {
		return 0, fmt.Errorf("the first message of a batch of %d: %w", len(msgs), err)
	}
	sequence, err = f.finish(ctx, msgs)
	if err != nil {
		f.pending.close(f.publisher)
	}
	return sequence, err
}

// begin sends the first message and waits until the server accepts the batch. The publisher waits without a context
// and, if the server refuses, until its timeout. So a goroutine with a copy of the message does the waiting, and ends
// at that timeout.
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

// finish sends the other messages and waits for the commit's answer.
func (f *fastBatch) finish(ctx context.Context, msgs []*nats.Msg) (sequence uint64, err error) {
	last := len(msgs) - 1
	for i, m := range msgs[1:last] {
		if late(ctx) {
			return 0, fmt.Errorf("message %d of a batch of %d: %w", i+2, len(msgs), context.DeadlineExceeded)
		}
		if _, err := f.publisher.AddMsg(f.load(m)); err != nil {
			return 0, fmt.Errorf("message %d of a batch of %d: %w", i+2, len(msgs), f.reason(err))
		}
	}
	if late(ctx) {
		return 0, fmt.Errorf("the commit of a batch of %d: %w", len(msgs), context.DeadlineExceeded)
	}
	ack, err := f.publisher.CommitMsg(ctx, f.load(msgs[last]))
	if err = f.reason(err); err != nil {
		return 0, fmt.Errorf("the commit of a batch of %d: %w", len(msgs), err)
	}
	if err := f.check(ack, len(msgs)); err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// reason returns why a batch failed for which the publisher returned err. It is nil if neither err nor the server
// gave a reason. An error that the server reported takes precedence: it is the cause, and the publisher often says
// only that the server has closed the batch.
func (f *fastBatch) reason(err error) error {
	select {
	case cause := <-f.trouble:
		return errors.Join(cause, err)
	default:
		return err
	}
}

// check returns nil if the acknowledgement confirms that n messages are stored.
//
// Sequence 0 means that the stream already knows the id of every message. With replicas, such a message may not have
// reached them yet, and the next leader might not have it. Only single publishes distinguish the two cases. Also, the
// server reports only once, outside the acknowledgement, that it could not store a message. If the connection was
// lost in between, that report may have been lost too.
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

// errKnown means that the stream already knows every message of a batch.
var errKnown = errors.New("the stream already knows every message")

// pendingClose holds publishers that could not be closed because the connection was down. Each keeps a subscription
// until it is closed. There is at most one for each batch that was in flight when the connection broke.
type pendingClose struct {
	mu   sync.Mutex
	left []jetstreamext.FastPublisher
}

// close closes a publisher, or keeps it to be closed later. The publisher must not be in use.
func (l *pendingClose) close(p jetstreamext.FastPublisher) {
	if !closed(p) {
		l.mu.Lock()
		l.left = append(l.left, p)
		l.mu.Unlock()
	}
}

// retry closes the publishers that could not be closed before.
func (l *pendingClose) retry() {
	l.mu.Lock()
	l.left = slices.DeleteFunc(l.left, closed)
	l.mu.Unlock()
}

// closed closes a publisher without waiting for the server, and reports whether it succeeded.
func closed(p jetstreamext.FastPublisher) bool {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := p.Close(now)
	return err == nil || p.IsClosed()
}
