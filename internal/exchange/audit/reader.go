package audit

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
	// atOnce and bytesAtOnce bound a request for messages. A message has at most 64 KiB of headers, and the server disconnects a client
	// with more than 64 MiB on the way.
	atOnce      = 10_000
	bytesAtOnce = 8 << 20

	// fetchWait is how long a request waits for a message that the consumer doesn't have yet.
	fetchWait = time.Second

	// silence is how long the server may send nothing of a stream although it has more messages.
	silence = 30 * time.Second

	// unused is how long the server keeps a consumer without requests.
	unused = 30 * time.Second
)

// reader reads the headers of a stream's messages in order, each once.
type reader struct {
	js     jetstream.JetStream
	stream string

	next     uint64 // sequence of the next message to read
	consumer string // name of the consumer that delivers the messages from next on; empty for none
	number   uint64 // consumer sequence of the last message from it
}

// advance passes on the headers of all messages up to the one with sequence end.
func (r *reader) advance(ctx context.Context, end uint64, visit func(sequence uint64, subject string, h nats.Header) error) error {
	for came := time.Now(); r.next <= end; {
		before := r.next
		err := r.fetch(ctx, visit)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("read stream %s: %w", r.stream, err)
		case r.next > before:
			came = time.Now()
			continue
		}
		// The consumer's server may be behind. The stream's leader knows whether there is more.
		m, err := jsapi.Next(ctx, r.js, r.stream, r.next, ">")
		switch {
		case err != nil:
			return fmt.Errorf("read stream %s: %w", r.stream, err)
		case m == nil || m.Sequence > end:
			r.next = end + 1
		case time.Since(came) > silence:
			return fmt.Errorf("read stream %s: the server sends nothing for %v, although it has message %d", r.stream, silence, m.Sequence)
		}
	}
	return nil
}

// fetch passes on the next messages. If none come, or if one was lost on the way, it drops the consumer, because only a new one tells what
// the stream still has.
func (r *reader) fetch(ctx context.Context, visit func(sequence uint64, subject string, h nats.Header) error) error {
	if r.consumer == "" {
		if err := r.create(ctx); err != nil {
			return err
		}
	}
	came, complete, failed := 0, true, error(nil)
	take := func(m *pull.Message) {
		meta, err := m.Metadata()
		if complete = complete && failed == nil && err == nil && meta.Sequence.Consumer == r.number+1; !complete {
			return
		}
		r.number, r.next = meta.Sequence.Consumer, meta.Sequence.Stream+1
		came++
		failed = visit(meta.Sequence.Stream, m.Subject(), m.Headers())
	}
	request := pull.Request{API: jsapi.Of(r.js), Stream: r.stream, Consumer: r.consumer, Bytes: bytesAtOnce}
	_, err := pull.Fetch(r.js.Conn(), request, atOnce, 0, take)
	if err == nil && complete && came == 0 {
		_, err = pull.Fetch(r.js.Conn(), request, 1, fetchWait, take)
	}
	if err != nil || !complete || came == 0 {
		r.consumer = ""
	}
	if failed != nil || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, pull.ErrSilent) {
		return failed // otherwise the server has deleted the consumer, or it is busy
	}
	return err
}

// create creates a consumer that delivers the headers of the messages from next on.
func (r *reader) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, err := r.js.CreateConsumer(ctx, r.stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.next, AckPolicy: jetstream.AckNonePolicy,
		HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: unused,
	})
	if err != nil {
		return err
	}
	r.consumer, r.number = c.CachedInfo().Name, 0
	return nil
}
