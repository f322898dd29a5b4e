package publisher

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

const (
	// mostMessages and mostBytes bound one batch. Together with mostAtOnce, they bound a worker's messages in the
	// stream's queue. The server drops messages that exceed 100,000 messages or 128 MiB in that queue. A batch with a
	// dropped message fails, and its messages are then published one by one.
	mostMessages = 4096
	mostBytes    = 4 << 20

	// batchesAtOnce is the maximum number of batches in flight per connection, and mostAtOnce the maximum over all
	// connections.
	batchesAtOnce = 8
	mostAtOnce    = 24
)

// Batched stores the messages of a Publish call as fast batches, with one acknowledgement per batch. If a batch isn't
// confirmed as a whole, Windowed publishes its messages again, and the server drops duplicates by their ids. Messages
// stored by a batch never have Answer.Duplicate set, because the server doesn't report duplicates within a batch.
type Batched struct {
	singles *Windowed
	places  chan struct{} // a token for each batch in flight
	trouble func(error)
}

// NewBatched returns a Batched over the connections of singles, which also publishes the messages of failed batches.
// trouble is called with the error of a failed batch, unless the error comes from the messages or from ctx. It may be
// nil, is called from several goroutines and must not block.
func NewBatched(singles *Windowed, trouble func(error)) *Batched {
	return &Batched{singles: singles, trouble: trouble, places: make(chan struct{}, min(batchesAtOnce*len(singles.conns), mostAtOnce))}
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
		if i > 0 && (i == mostMessages || bytes > mostBytes) {
			return i
		}
	}
	return len(msgs)
}

// putBatch stores msgs, which must fit in one batch.
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

// errDisconnected is the error of a batch that would start while its connection is down. Such a batch could only
// wait.
var errDisconnected = errors.New("no connection to begin a batch on")

// commit stores msgs as one batch. It returns nil only if the server has confirmed all of them.
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
