package cliclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/pull"
)

const (
	// atOnce and bytesAtOnce bound a request for messages, which must have room for the largest message. A message has at most 64 KiB of
	// headers, and the server disconnects a client with more than 64 MiB on the way.
	atOnce      = 10_000
	bytesAtOnce = 8 << 20

	// fetchWait is how long a request waits for a message that the consumer doesn't have yet.
	fetchWait = time.Second

	// silence is how long the server may send nothing of a stream although it has more messages.
	silence = 30 * time.Second

	// unused is how long the server keeps a consumer without requests.
	unused = 30 * time.Second

	// requestTimeout bounds one request to the server.
	requestTimeout = 10 * time.Second
)

// Reader reads the messages of a stream in order, each once. It uses temporary consumers and leaves the stream as it is.
type Reader struct {
	JS          jetstream.JetStream
	Stream      string
	Subjects    []string // filters of subjects, as the stream stores them; empty: all
	HeadersOnly bool
	AskLeader   bool   // ask the stream's leader whether there are more messages, because the consumer's server may be behind it
	Next        uint64 // sequence of the next message to read

	consumer string // name of the consumer that delivers the messages from Next on; empty for none
	number   uint64 // consumer sequence of the last message from it
	pending  bool   // the consumer may have more messages
}

// Visit takes a message, which has that sequence in its stream. An error ends the reading.
type Visit func(sequence uint64, m *pull.Message) error

// Advance passes on all messages up to the one with sequence end. It may pass on more that are stored meanwhile.
func (r *Reader) Advance(ctx context.Context, end uint64, visit Visit) error {
	wait, came := time.Duration(0), time.Now()
	for r.Next <= end {
		before := r.Next
		if err := r.fetch(ctx, wait, visit); err != nil {
			return r.failed(ctx, err)
		}
		if r.Next > before {
			wait, came = 0, time.Now()
			if r.pending {
				continue
			}
		}
		more, err := r.hasMore(ctx, end)
		switch {
		case err != nil:
			return r.failed(ctx, err)
		case !more:
			r.Next = max(r.Next, end+1)
		case time.Since(came) > silence:
			return fmt.Errorf("read stream %s: the server sends nothing for %v, although it has more messages", r.Stream, silence)
		case wait > 0:
			r.drop() // only a new consumer tells what the stream still has
		default:
			wait = fetchWait
		}
	}
	return nil
}

// Follow passes on the messages that come, until ctx ends, which is no error. It outlives a connection that breaks.
func (r *Reader) Follow(ctx context.Context, visit Visit) error {
	for {
		err := r.fetch(ctx, fetchWait, visit)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
		case !r.JS.Conn().IsClosed() && (Lost(err) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled)):
			pause(ctx, 100*time.Millisecond)
		default:
			return r.failed(ctx, err)
		}
	}
}

// failed returns the error of a reader whose context may have ended.
func (r *Reader) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("read stream %s: %w", r.Stream, err)
}

// hasMore reports whether the stream has more messages up to end.
func (r *Reader) hasMore(ctx context.Context, end uint64) (bool, error) {
	if !r.AskLeader {
		return r.pending, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := jsapi.Next(ctx, r.JS, r.Stream, r.Next, ">")
	return m != nil && m.Sequence <= end, err
}

// fetch passes on the next messages. If one was lost on the way, it drops the consumer.
func (r *Reader) fetch(ctx context.Context, wait time.Duration, visit Visit) error {
	if r.consumer == "" {
		if err := r.create(ctx); err != nil {
			return err
		}
	}
	complete, failed := true, error(nil)
	request := pull.Request{API: jsapi.Of(r.JS), Stream: r.Stream, Consumer: r.consumer, Bytes: bytesAtOnce}
	if !r.HeadersOnly {
		request.Bytes = max(bytesAtOnce, 2*int(r.JS.Conn().MaxPayload()))
	}
	_, err := pull.Fetch(r.JS.Conn(), request, atOnce, wait, func(m *pull.Message) {
		meta, err := m.Metadata()
		if complete = complete && failed == nil && err == nil && meta.Sequence.Consumer == r.number+1; !complete {
			return
		}
		r.number, r.Next, r.pending = meta.Sequence.Consumer, meta.Sequence.Stream+1, meta.NumPending > 0
		failed = visit(meta.Sequence.Stream, m)
	})
	if err != nil || !complete {
		r.drop()
	}
	if failed != nil || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, pull.ErrSilent) {
		return failed // otherwise the server has deleted the consumer, or it is busy
	}
	return err
}

// drop leaves the consumer to the server, which removes it.
func (r *Reader) drop() { r.consumer, r.pending = "", true }

// create creates a consumer that delivers the messages from Next on.
func (r *Reader) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, err := r.JS.CreateConsumer(ctx, r.Stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.Next, AckPolicy: jetstream.AckNonePolicy, FilterSubjects: r.Subjects,
		HeadersOnly: r.HeadersOnly, MemoryStorage: true, Replicas: 1, InactiveThreshold: unused,
	})
	if err != nil {
		return err
	}
	r.consumer, r.number, r.pending = c.CachedInfo().Name, 0, c.CachedInfo().NumPending > 0
	return nil
}
