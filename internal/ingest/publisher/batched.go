package publisher

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

const (
	// fewest is how many messages make a batch. A batch waits for an answer to its first message and for one to
	// its last, so one or two are stored sooner by themselves.
	fewest = 3

	// mostMessages and mostBytes bound one batch. Nothing holds its messages back but the wait for its commit, so
	// with mostAtOnce they bound what one worker has in the stream's queue: the server drops what goes beyond 100,000
	// messages or 128 MiB there, and with it the batch, which is then completed message by message.
	mostMessages = 4096
	mostBytes    = 4 << 20

	// batchesAtOnce is how many batches of one connection may be under way, and mostAtOnce how many of all.
	batchesAtOnce = 8
	mostAtOnce    = 24
)

// Batched stores the messages of a Put as fast batches, with one acknowledgement each. A batch that is not
// confirmed as a whole is given to a Windowed store, which completes it: duplicates are dropped by their ids. What
// was stored by a batch never has Answer.Duplicate set, since the server does not say it of one message among many.
type Batched struct {
	singles *Windowed
	places  chan struct{} // a token for each batch under way
	trouble func(error)
	pending pendingClose
}

// NewBatched makes a store over the connections of singles, which completes what batches leave. trouble, which may be
// nil, is told why a batch was not confirmed, unless that says nothing of the server; it is called from several
// goroutines and must not block.
func NewBatched(singles *Windowed, trouble func(error)) *Batched {
	return &Batched{singles: singles, trouble: trouble, places: make(chan struct{}, min(batchesAtOnce*len(singles.conns), mostAtOnce))}
}

// Publish implements Store. More than a batch can hold is cut.
func (b *Batched) Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	for len(msgs) > 0 {
		n := cut(msgs)
		dst = b.putBatch(ctx, msgs[:n], dst)
		msgs = msgs[n:]
	}
	return dst
}

// cut is how many of msgs make the next batch: at least one.
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

// putBatch stores what one batch can hold.
func (b *Batched) putBatch(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	if len(msgs) < fewest {
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

// errDisconnected keeps a batch from being begun that could only wait.
var errDisconnected = errors.New("no connection to begin a batch on")

// commit stores msgs as one batch. It returns nil only if the server has confirmed every one of them.
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
	b.pending.retry()
	f, err := newFastBatch(l, b.singles.timeout, &b.pending)
	if err != nil {
		return err
	}
	return f.publish(ctx, msgs)
}
