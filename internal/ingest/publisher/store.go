package publisher

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

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
