package lookup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/pull"
)

const (
	// atOnce is the maximum number of messages per request.
	atOnce = 5000

	// bytesAtOnce is the byte limit per request. A message has at most 64 KiB of headers, and the server disconnects
	// a client with more than 64 MiB pending.
	bytesAtOnce = 4 << 20

	// fetchWait is how long a request waits for messages.
	fetchWait = time.Second

	// logEvery is the interval at which a long scan logs its progress.
	logEvery = 10 * time.Second
)

// scanner reads the headers of the messages in the streams, each once, and records the inputs that they belong to.
type scanner struct {
	*api
	found   index
	since   time.Time // start of the period that has been read, up to the cursors; zero: nothing has been read
	cursors []cursor
	read    int // number of messages read so far, for tests
}

// cursor is the position up to which a stream has been read.
type cursor struct {
	stream  string
	created time.Time
	next    uint64 // next sequence to read; 0: start by time
	highest uint64 // highest sequence of an input that was read
}

// restart drops all entries. The next scan reads from since on.
func (r *scanner) restart(since time.Time) {
	r.found, r.cursors, r.since = newIndex(), nil, since
	for _, name := range r.s.Streams {
		r.cursors = append(r.cursors, cursor{stream: name})
	}
}

// scan reads the headers of all messages that a stream stored from the cursor on, up to now. complete is false if
// entries were dropped that belong to none of these inputs.
func (r *scanner) scan(ctx context.Context, c *cursor, wanted []Input) (complete bool, err error) {
	info, err := r.info(ctx, c.stream)
	if err != nil {
		return false, err
	}
	if info == nil {
		*c = cursor{stream: c.stream}
		return true, nil
	}
	if err := keeps(info); err != nil {
		return false, err
	}
	if !info.Created.Equal(c.created) {
		*c = cursor{stream: c.stream, created: info.Created} // messages from before the stream was recreated no longer count
	}
	end := info.State.LastSeq
	if info.State.Msgs == 0 || c.next > end {
		c.next = end + 1
		return true, nil
	}
	consumer, err := r.consumer(ctx, c)
	if err != nil {
		return false, err
	}
	complete, started, said, read := true, time.Now(), time.Now(), 0
	take := func(m *pull.Message) {
		read++
		if meta, err := m.Metadata(); err == nil {
			c.next = meta.Sequence.Stream + 1
			complete = r.enter(c, m, wanted) && complete
		}
	}
	for left := consumer.CachedInfo().NumPending; left > 0 && c.next <= end; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		came, err := pull.Fetch(r.nc, pull.Request{Stream: c.stream, Consumer: consumer.CachedInfo().Name, Bytes: bytesAtOnce}, int(min(left, atOnce)), fetchWait, take)
		if err != nil && !errors.Is(err, nats.ErrNoResponders) {
			return false, fmt.Errorf("read the headers of stream %q: %w", c.stream, err)
		}
		left -= min(left, uint64(came))
		if came == 0 {
			gone, err := r.ended(ctx, consumer)
			if err != nil {
				return false, err
			}
			if gone {
				break
			}
		}
		if time.Since(said) >= logEvery {
			said = time.Now()
			r.s.Log.Info("looking up results that may be stored already; their inputs wait until this is done", "stream", c.stream, "read", read, "left", left)
		}
	}
	c.next = max(c.next, end+1)
	r.read += read
	if took := time.Since(started); took >= logEvery {
		r.s.Log.Info("looked up results that may be stored already", "stream", c.stream, "read", read, "took", took.Round(time.Millisecond).String())
	}
	return complete, nil
}

// ended reports whether a consumer has nothing more because its pending messages were removed from the stream.
func (r *scanner) ended(ctx context.Context, consumer jetstream.Consumer) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := r.js.Consumer(ctx, consumer.CachedInfo().Stream, consumer.CachedInfo().Name)
	if err != nil {
		return false, fmt.Errorf("query the consumer that reads stream %q: %w", consumer.CachedInfo().Stream, err)
	}
	return info.CachedInfo().NumPending == 0, nil
}

// consumer creates the consumer that a scan reads from.
func (r *scanner) consumer(ctx context.Context, c *cursor) (jetstream.Consumer, error) {
	if c.next == 0 {
		return r.consumerSince(ctx, c.stream, r.since)
	}
	return r.consumerFrom(ctx, c.stream, c.next)
}

// enter records the input that a message belongs to. It returns false if entries had to be dropped.
func (r *scanner) enter(c *cursor, m *pull.Message, wanted []Input) (kept bool) {
	in, old, ok := parse(m.Headers().Get(jetstream.MsgIDHeader), r.s.Input)
	if !ok {
		return true
	}
	c.highest = max(c.highest, in.Sequence)
	if id := m.Headers().Get(jetstream.MsgIDHeader); isPartial(id, m.Headers().Get(r.s.Part)) {
		return r.found.has(in) || r.found.unfinished.add(id, in, wanted)
	}
	add := func() bool { return r.found.add(in) }
	if old {
		add = func() bool { return r.found.addOld(in.Sequence) }
	}
	if add() {
		return true
	}
	r.found.keep(wanted)
	_ = add() // there is space now, or the sequence is one of many that were reused
	return false
}
