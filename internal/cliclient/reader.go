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
	// atOnce and bytesAtOnce limit one request for messages. The request must allow the largest message, which has at
	// most 64 KiB of headers. The server disconnects a client with more than 64 MiB in transit.
	atOnce      = 10_000
	bytesAtOnce = 8 << 20

	// fetchWait is the maximum time that a request waits for new messages.
	fetchWait = time.Second

	// Silence is the maximum time without a message while the stream has more messages.
	Silence = 30 * time.Second

	// Unused is the time after which the server removes a temporary consumer without requests.
	Unused = 30 * time.Second

	// RequestTimeout is the default timeout of clients for the commands, which bounds each request to the server.
	RequestTimeout = 10 * time.Second
)

// StreamInfo returns the state of a stream. The error names the stream.
func StreamInfo(ctx context.Context, js jetstream.JetStream, name string) (*jetstream.StreamInfo, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	return s.CachedInfo(), nil
}

// Reader reads each message of a stream once, in order. It uses temporary consumers and doesn't change the stream.
type Reader struct {
	JS          jetstream.JetStream
	Stream      string
	Subjects    []string // filters for the stored subjects; empty for all
	HeadersOnly bool
	// AskLeader makes the reader query the stream's leader for further messages, because the server of the consumer may
	// lag behind the leader.
	AskLeader bool
	Next      uint64 // sequence of the next message to read

	consumer string // name of the consumer that delivers the messages from Next on; empty for none
	number   uint64 // consumer sequence of the last delivered message
	pending  bool   // the consumer may have more messages
}

// Visit handles the message with the given stream sequence. An error ends the reading.
type Visit func(sequence uint64, m *pull.Message) error

// Advance calls visit for all messages up to sequence end. It may also call visit for later messages that are stored
// during the call.
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
		case time.Since(came) > Silence:
			return fmt.Errorf("read stream %s: the server sends nothing for %v, although it has more messages", r.Stream, Silence)
		case wait > 0:
			r.drop() // only a new consumer reports the current number of messages
		default:
			wait = fetchWait
		}
	}
	return nil
}

// Follow calls visit for new messages until ctx ends, and then returns nil. It continues after the connection was lost
// and restored.
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

// failed returns ctx's error if ctx has ended. Otherwise it adds the stream's name to err.
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
	m, err := jsapi.Next(ctx, r.JS, r.Stream, r.Next, ">")
	return m != nil && m.Sequence <= end, err
}

// fetch calls visit for the next messages, and waits at most wait for them. If the request fails or a message is
// missing, fetch drops the consumer.
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
		return failed // without an answer, the next call tries again with a new consumer
	}
	return err
}

// drop stops the use of the consumer. The server removes it later.
func (r *Reader) drop() { r.consumer, r.pending = "", true }

func (r *Reader) create(ctx context.Context) error {
	c, err := r.JS.CreateConsumer(ctx, r.Stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.Next, AckPolicy: jetstream.AckNonePolicy, FilterSubjects: r.Subjects,
		HeadersOnly: r.HeadersOnly, MemoryStorage: true, Replicas: 1, InactiveThreshold: Unused,
	})
	if err != nil {
		return err
	}
	r.consumer, r.number, r.pending = c.CachedInfo().Name, 0, c.CachedInfo().NumPending > 0
	return nil
}
