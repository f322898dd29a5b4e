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
	// atOnce is how many headers one request brings.
	atOnce = 5000

	// bytesAtOnce bounds them too: a message has 64 KiB of headers at most, and the server cuts off who has more than 64 MiB on the way.
	bytesAtOnce = 4 << 20

	// fetchWait is how long a request waits for them.
	fetchWait = time.Second

	// logEvery is how often a long scan says how far it is.
	logEvery = 10 * time.Second
)

// scanner reads the headers of what the streams stored, each once, and enters which inputs they are of.
type scanner struct {
	*api
	found   index
	since   time.Time // everything stored since then was read, up to the cursors; zero: nothing
	cursors []cursor
	read    int // messages so far, for tests
}

// cursor is how far a stream was read.
type cursor struct {
	stream  string
	created time.Time
	next    uint64 // sequence; 0: by time
	highest uint64 // sequence of an input that was read
}

// restart lets go of what was read, and has the next scans read from since on.
func (r *scanner) restart(since time.Time) {
	r.found, r.cursors, r.since = newIndex(), nil, since
	for _, name := range r.s.Streams {
		r.cursors = append(r.cursors, cursor{stream: name})
	}
}

// scan reads the headers of what a stream stored from the cursor on, up to now. complete is false where something was let go of
// that is of none of these inputs.
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
		*c = cursor{stream: c.stream, created: info.Created} // what the stream had before it was created anew counts no more
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
			r.s.Log.Info("looking for results that may be stored already; their inputs wait meanwhile", "stream", c.stream, "read", read, "left", left)
		}
	}
	c.next = max(c.next, end+1)
	r.read += read
	if took := time.Since(started); took >= logEvery {
		r.s.Log.Info("has looked for results that may be stored already", "stream", c.stream, "read", read, "took", took.Round(time.Millisecond).String())
	}
	return complete, nil
}

// ended says whether a consumer has nothing more: what was pending has been removed from the stream.
func (r *scanner) ended(ctx context.Context, consumer jetstream.Consumer) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := r.js.Consumer(ctx, consumer.CachedInfo().Stream, consumer.CachedInfo().Name)
	if err != nil {
		return false, fmt.Errorf("look at the consumer that reads stream %q: %w", consumer.CachedInfo().Stream, err)
	}
	return info.CachedInfo().NumPending == 0, nil
}

// consumer makes what a scan reads from.
func (r *scanner) consumer(ctx context.Context, c *cursor) (jetstream.Consumer, error) {
	if c.next == 0 {
		return r.consumerSince(ctx, c.stream, r.since)
	}
	return r.consumerFrom(ctx, c.stream, c.next)
}

// enter notes which input a message is of. It says false where something had to be let go of.
func (r *scanner) enter(c *cursor, m *pull.Message, wanted []Input) (kept bool) {
	in, old, ok := parse(m.Headers().Get(jetstream.MsgIDHeader), r.s.Input)
	if !ok {
		return true
	}
	c.highest = max(c.highest, in.Sequence)
	add := func() bool { return r.found.add(in) }
	if old {
		add = func() bool { return r.found.addOld(in.Sequence) }
	}
	if add() {
		return true
	}
	r.found.keep(wanted)
	_ = add() // there is room now, or it is one of many sequences that were used again
	return false
}
