package lookup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/store"
)

const (
	// atOnce is the maximum number of messages per request.
	atOnce = 5000

	// bytesAtOnce is the byte limit per request. A message has at most 64 KiB of headers, and the server disconnects
	// a client with more than 64 MiB pending.
	bytesAtOnce = 4 << 20

	// fetchWait is the time for which fetch waits if no message is available at once.
	fetchWait = time.Second

	// logEvery is the interval at which a long scan logs its progress.
	logEvery = 10 * time.Second
)

// restart drops all entries. The next scan reads from since on.
func (r *Results) restart(since time.Time) {
	r.found, r.cursors, r.since, r.dropped = newIndex(), nil, since, false
	for _, name := range r.o.Streams {
		r.cursors = append(r.cursors, cursor{stream: name})
	}
}

// maxRestarts is the maximum number of restarts per scan because of errReplaced.
const maxRestarts = 3

// scan reads the headers of all messages from the cursors to the current ends of the streams. If a stream no longer has
// messages that an earlier scan has read, scan restarts, because their entries are wrong.
func (r *Results) scan(ctx context.Context, wanted []Input) (err error) {
	for range maxRestarts + 1 {
		if err = r.scanStreams(ctx, wanted); !errors.Is(err, errReplaced) {
			return err
		}
		r.o.Log.Warn("a stream of results has lost messages that were read; the stored results are looked up again", "error", err)
		r.restart(r.since)
	}
	return err
}

func (r *Results) scanStreams(ctx context.Context, wanted []Input) error {
	for i := range r.cursors {
		if err := r.scanStream(ctx, &r.cursors[i], wanted); err != nil {
			return err
		}
	}
	return nil
}

// errReplaced is the error for a stream that was deleted or recreated, or that lost its last messages in a crash of the
// server. The server then reuses their sequences.
var errReplaced = errors.New("the stream has lost its last messages")

// isReplaced reports whether a stream lost messages that the cursor has passed. info is nil if the stream doesn't exist.
func (c *cursor) isReplaced(info *jetstream.StreamInfo) bool {
	switch {
	case c.created.IsZero():
		return false
	case info == nil || !info.Created.Equal(c.created):
		return true
	}
	end := info.State.LastSeq
	return c.next > end+1 || c.next == end+1 && !info.State.LastTime.Equal(c.last)
}

// scanStream reads one stream like scan.
func (r *Results) scanStream(ctx context.Context, c *cursor, wanted []Input) error {
	info, err := r.info(ctx, c.stream)
	switch {
	case err != nil:
		return err
	case c.isReplaced(info):
		return fmt.Errorf("stream %q: %w", c.stream, errReplaced)
	case info == nil:
		return nil
	}
	c.created = info.Created
	end := info.State.LastSeq
	if info.State.Msgs == 0 || c.next > end {
		c.next, c.last = end+1, info.State.LastTime
		return nil
	}
	progress := progress{log: r.o.Log, stream: c.stream, started: time.Now(), said: time.Now()}
	for c.next <= end {
		if err := ctx.Err(); err != nil {
			return err
		}
		begun, pending := c.consumer == "", uint64(0)
		if begun {
			if pending, err = r.begin(ctx, c); err != nil {
				return err
			}
		}
		came, checked := 0, false
		if !begun || pending > 0 {
			if came, checked, err = r.fetch(c, func(m *pull.Message) { r.enter(m, wanted) }); err != nil {
				return fmt.Errorf("read the headers of stream %q: %w", c.stream, err)
			}
		}
		switch {
		case !begun || came > 0:
		case pending == 0 || checked && pending == 1:
			c.next, c.last = end+1, info.State.LastTime // the remaining messages were removed
		default: // the caller retries later, because a retry here would create one consumer after another
			return fmt.Errorf("read the headers of stream %q: %w", c.stream, errNothing)
		}
		r.read += came
		progress.reading(came, end-min(c.next, end))
	}
	progress.done()
	return nil
}

// errNothing is the error for a new consumer that has messages but delivers none.
var errNothing = errors.New("a consumer delivers none of its messages")

// begin creates the consumer of a cursor, and returns the number of messages that the consumer will deliver. The first is
// the message before c.next if its time is known, so that fetch can check it.
func (r *Results) begin(ctx context.Context, c *cursor) (pending uint64, err error) {
	from := c.next
	if from > 0 && !c.last.IsZero() {
		from--
	}
	consumer, err := r.consumer(ctx, c.stream, from)
	if err != nil {
		return 0, err
	}
	c.consumer, c.number = consumer.CachedInfo().Name, 0
	return consumer.CachedInfo().NumPending, nil
}

// fetch passes the next messages to take, and returns their number. checked reports whether the message before c.next
// came too. If another message has taken its place, fetch returns errReplaced. If no message arrives or one was lost, fetch
// drops the consumer. Only a new consumer has a reliable count of pending messages, because the count of an existing
// consumer lags behind the stream.
func (r *Results) fetch(c *cursor, take func(*pull.Message)) (came int, checked bool, err error) {
	replaced := false
	request, whole := pull.Request{API: jsapi.Of(r.js), Stream: c.stream, Consumer: c.consumer, Bytes: bytesAtOnce}, true
	next := func(m *pull.Message) {
		meta, err := m.Metadata()
		if whole = whole && err == nil && meta.Sequence.Consumer == c.number+1; !whole {
			return
		}
		c.number = meta.Sequence.Consumer
		if meta.Sequence.Stream < c.next {
			checked, replaced = true, !meta.Timestamp.Equal(c.last)
			return
		}
		c.next, c.last = meta.Sequence.Stream+1, meta.Timestamp
		came++
		take(m)
	}
	_, err = pull.Fetch(r.js.Conn(), request, atOnce, 0, next)
	if err == nil && whole && came == 0 {
		_, err = pull.Fetch(r.js.Conn(), request, 1, fetchWait, next)
	}
	if err != nil || !whole || came == 0 {
		c.consumer = ""
	}
	switch {
	case replaced:
		return came, checked, errReplaced
	case errors.Is(err, nats.ErrNoResponders):
		return came, checked, nil // the server has deleted the consumer
	}
	return came, checked, err
}

// progress logs the progress of a long scan.
type progress struct {
	log           *slog.Logger
	stream        string
	started, said time.Time
	read          int
}

// reading adds came to the number of messages read. Every logEvery, it logs left, the approximate number of messages left.
func (p *progress) reading(came int, left uint64) {
	p.read += came
	if time.Since(p.said) >= logEvery {
		p.said = time.Now()
		p.log.Info("looking up results that may be stored already; their inputs wait until this is done", "stream", p.stream, "read", p.read, "left", left)
	}
}

func (p *progress) done() {
	if took := time.Since(p.started); took >= logEvery {
		p.log.Info("looked up results that may be stored already", "stream", p.stream, "read", p.read, "took", took.Round(time.Millisecond).String())
	}
}

// enter records the input that a message belongs to. It drops entries if there is no space.
func (r *Results) enter(m *pull.Message, wanted []Input) {
	id := store.IDOf(m.Headers())
	in, ok := parse(id, r.o.Input)
	switch {
	case !ok:
	case isPartial(id, m.Headers().Get(r.o.Part)):
		if !r.found.has(in) && !r.found.unfinished.add(Partial{id, m.Headers().Get(r.o.Reason)}, in, wanted) {
			r.dropped = true
		}
	case !r.found.add(in):
		r.dropped = true
		r.found.keep(wanted)
		_ = r.found.add(in) // add fails only if too many sequences were reused
	}
}
