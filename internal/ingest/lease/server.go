package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
)

// consumerServer implements leaseServer with a consumer on a real server.
type consumerServer struct {
	js        jetstream.JetStream
	requests  *nats.Conn // connection for requests
	inputs    *nats.Conn // connection for inputs
	stream    string
	name      string // name of the consumer
	partition int    // only for exclusive delivery
	consumer  jetstream.Consumer
	size      func(jetstream.Consumer) pull.Size
	request   pull.Request
	refused   atomic.Bool // see streamReader.refused
	log       *slog.Logger
}

func (s *consumerServer) Info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	info, err := s.consumer.Info(ctx)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		err = fmt.Errorf("the consumer is gone: create it again, or restart a worker with MILLRACE_PROVISION=true: %w", err)
	}
	return info, err
}

func (s *consumerServer) reset(ctx context.Context, sequence uint64) error {
	if s.consumer.CachedInfo().Config.DeliverPolicy != jetstream.DeliverAllPolicy { // with most other policies, the server accepts no sequence
		sequence = 0 // the floor
	}
	_, err := s.js.ResetConsumerToSequence(ctx, s.stream, s.name, sequence)
	return err
}

func (s *consumerServer) redeliver(_ context.Context, sequence, number uint64) error {
	return s.stored(sequence, number).Nak()
}

func (s *consumerServer) Annotate(ctx context.Context, config jetstream.ConsumerConfig, metadata map[string]string) error {
	config.Metadata = metadata
	_, err := s.js.UpdateConsumer(ctx, s.stream, config)
	return err
}

func (s *consumerServer) unpin(ctx context.Context) error {
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return err
	}
	return stream.UnpinConsumer(ctx, s.name, topology.PriorityGroup)
}

func (s *consumerServer) reader() leaseReader {
	return &streamReader{js: s.js, inputs: s.inputs, stream: s.stream, filter: fmt.Sprint(s.partition, ".>"), bytes: readAheadBytes, refused: &s.refused, log: s.log}
}

func (s *consumerServer) message(raw *jetstream.RawStreamMsg, number uint64) inflight.Incoming {
	return pull.Stored(s.inputs, s.stream, s.name, number, raw)
}

func (s *consumerServer) receipt(sequence, number uint64) pull.AckToken {
	return s.stored(sequence, number)
}

// stored returns a delivery with the given stream sequence and consumer sequence, but without payload and headers.
func (s *consumerServer) stored(sequence, number uint64) *pull.Message {
	return pull.Stored(s.inputs, s.stream, s.name, number, &jetstream.RawStreamMsg{Sequence: sequence, Time: time.Unix(0, 0)})
}

func (s *consumerServer) flush(ctx context.Context) error {
	err := s.inputs.FlushWithContext(ctx)
	if errors.Is(err, nats.ErrConnectionClosed) && !s.inputs.IsClosed() {
		return nats.ErrDisconnected // the client reports a connection that is lost during a flush as closed
	}
	return err
}

// newConsumerServer returns a consumerServer without a request.
func newConsumerServer(o *Options, inputs *nats.Conn, c jetstream.Consumer, log *slog.Logger) *consumerServer {
	return &consumerServer{
		js: o.JS, requests: o.Conns[0], inputs: inputs, stream: o.Topology.Stream, name: c.CachedInfo().Name, consumer: c, size: o.Size, log: log,
	}
}

// sharedRequest returns the request for shared delivery.
func (s *consumerServer) sharedRequest() pull.Request {
	size := s.size(s.consumer)
	return pull.Request{
		API: jsapi.Of(s.js), Stream: s.stream, Consumer: s.name, Messages: size.Messages, Limit: size.Limit(s.inputs),
		Expires: pull.BeatsPerRequest * size.Beat, Heartbeat: size.Beat,
	}
}

// pull opens a pull. The consumer's limits may have changed since the last one.
func (s *consumerServer) pull() (leasePull, error) {
	s.request.Limit = s.size(s.consumer).Limit(s.inputs)
	p, err := pull.Open(s.inputs, s.request)
	if err != nil {
		return nil, err
	}
	return consumerPull{p}, nil
}

func (s *consumerServer) fetch(n int, wait time.Duration, take func(inflight.Incoming)) (came int, err error) {
	return pull.Fetch(s.inputs, s.request, min(n, s.request.Messages), min(wait, s.request.Expires), func(m *pull.Message) { take(m) })
}

const (
	// readSingly is the number of consecutive messages that are read with one request each. Further messages are read
	// through a temporary consumer, which delivers many per request. A message counts again for every readSinglyBytes,
	// because a single request returns it as JSON.
	readSingly      = 16
	readSinglyBytes = 8 << 10

	// readAhead is the maximum number of messages per request to the temporary consumer. readAheadBytes is the maximum
	// number of bytes of inputs, unless the largest message needs more.
	readAhead      = 256
	readAheadBytes = 1 << 20

	// readAheadSpare is the number of bytes for headers and subjects, which the server counts in addition to a message.
	readAheadSpare = 128 << 10

	// readUnused is the time without a request after which the server deletes the temporary consumer. The worker needs
	// no permission to delete consumers.
	readUnused = 5 * time.Second
)

// streamReader implements leaseReader with a real server.
type streamReader struct {
	js      jetstream.JetStream // for requests
	inputs  *nats.Conn          // connection for inputs
	stream  string
	filter  string       // subjects of the partition
	bytes   int          // maximum number of bytes per request to the temporary consumer, unless the largest message needs more
	refused *atomic.Bool // whether a temporary consumer has failed; shared by the readers of a lease
	log     *slog.Logger

	next   uint64                    // sequence after the last message that was read
	singly int                       // number of consecutive messages that were read singly
	bulk   string                    // name of the temporary consumer that delivers messages from next on, or empty
	number uint64                    // consumer sequence of the last message from bulk
	ahead  []*jetstream.RawStreamMsg // messages from bulk that were not read yet
}

func (r *streamReader) read(ctx context.Context, from uint64) (*jetstream.RawStreamMsg, error) {
	if from != r.next {
		r.singly, r.bulk, r.ahead = 0, "", nil
	}
	if r.singly >= readSingly && len(r.ahead) == 0 && !r.refused.Load() {
		r.fetch(ctx, from)
	}
	raw, err := r.nextBuffered(ctx, from)
	if err != nil || raw == nil {
		return nil, err
	}
	r.next = raw.Sequence + 1
	return raw, nil
}

// readSome is like read, and also returns all buffered messages behind the one that read returns.
func (r *streamReader) readSome(ctx context.Context, from uint64) ([]*jetstream.RawStreamMsg, error) {
	first, err := r.read(ctx, from)
	if first == nil {
		return nil, err
	}
	all := append([]*jetstream.RawStreamMsg{first}, r.ahead...)
	r.ahead, r.next = nil, all[len(all)-1].Sequence+1
	return all, nil
}

// nextBuffered returns the first buffered message. If there is none, it requests a single message from the stream.
func (r *streamReader) nextBuffered(ctx context.Context, from uint64) (*jetstream.RawStreamMsg, error) {
	if len(r.ahead) > 0 {
		raw := r.ahead[0]
		r.ahead[0], r.ahead = nil, r.ahead[1:]
		return raw, nil
	}
	if r.bulk != "" {
		r.singly, r.bulk = 0, "" // the consumer delivered nothing, maybe because the next message is too large for its requests
	}
	r.singly++
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	raw, err := jsapi.Next(ctx, r.js, r.stream, from, r.filter)
	if raw != nil {
		r.singly += len(raw.Data) / readSinglyBytes
	}
	return raw, err
}

// fetch requests the next messages through the temporary consumer. If it fails before any message arrives, all further
// messages are read singly. If it fails later, the next readSingly messages are read singly.
func (r *streamReader) fetch(ctx context.Context, from uint64) {
	if r.bulk == "" {
		c, err := r.create(ctx, from)
		if err != nil {
			r.refuse(ctx, err)
			return
		}
		r.bulk, r.number = c.CachedInfo().Name, 0
	}
	complete := true
	bytes := max(r.bytes, int(r.inputs.MaxPayload())+readAheadSpare)
	_, err := pull.Fetch(r.inputs, pull.Request{API: jsapi.Of(r.js), Stream: r.stream, Consumer: r.bulk, Bytes: bytes}, readAhead, 0, func(m *pull.Message) {
		meta, err := m.Metadata()
		if complete = complete && err == nil && meta.Sequence.Consumer == r.number+1; !complete {
			return // a message before this one was lost
		}
		r.number++
		r.ahead = append(r.ahead, &jetstream.RawStreamMsg{
			Subject: m.Subject(), Sequence: meta.Sequence.Stream, Header: m.Headers(), Data: m.Data(), Time: meta.Timestamp,
		})
	})
	switch {
	case err != nil && len(r.ahead) == 0:
		r.refuse(ctx, err)
	case err != nil || !complete:
		r.log.Debug("could not fetch all inputs that were requested from the stream", "fetched", len(r.ahead), "error", err)
		r.singly, r.bulk = 0, ""
	}
}

// refuse makes all readers of the lease read singly, unless ctx is the reason for err.
func (r *streamReader) refuse(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	r.log.Info("reading delivered inputs from the stream one by one, because a temporary consumer didn't work", "error", err)
	r.refused.Store(true)
}

// create creates a consumer that delivers the messages from a sequence on. It fails on a stream without limits
// retention, because deleting a consumer may remove unprocessed inputs there (adr/0048).
func (r *streamReader) create(ctx context.Context, from uint64) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	s, err := r.js.Stream(ctx, r.stream)
	if err != nil {
		return nil, err
	}
	if s.CachedInfo().Config.Retention != jetstream.LimitsPolicy {
		return nil, errRetention
	}
	return s.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: r.filter, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: readUnused,
	})
}

var errRetention = errors.New("the stream has no retention by limits, so removing a consumer may remove inputs")

func (r *streamReader) proveEnd(ctx context.Context, from uint64) error {
	if r.refused.Load() {
		return nil // without a consumer, there is no proof
	}
	c, err := r.create(ctx, from)
	if err != nil {
		r.refuse(ctx, err)
		return nil
	}
	if n := c.CachedInfo().NumPending; n > 0 {
		return fmt.Errorf("stream %q has %d messages from sequence %d on, and finds none of them", r.stream, n, from)
	}
	return nil
}
