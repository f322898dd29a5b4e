package publisher

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

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
