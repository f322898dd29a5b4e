package partitioned

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
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
)

// leaseServer contains all requests that a lease makes to the server. It does not abstract time, because tests run a
// lease in a testing/synctest bubble with its own clock.
type leaseServer interface {
	// info returns the state of the partition's consumer.
	info(ctx context.Context) (*jetstream.ConsumerInfo, error)

	// reset makes the consumer deliver again from the given stream sequence. Consumer sequences then start at 1. reset
	// requires nats-server 2.14 or later. Only repair calls reset.
	reset(ctx context.Context, sequence uint64) error

	// redeliver makes the consumer redeliver an unacknowledged input. number is the consumer's last consumer sequence. The
	// server ignores the request if the input is already acknowledged.
	redeliver(ctx context.Context, sequence, number uint64) error

	// annotate replaces the consumer's metadata. config is the consumer's current configuration.
	annotate(ctx context.Context, config jetstream.ConsumerConfig, metadata map[string]string) error

	// unpin removes the consumer's pin, so that the server can pin another client.
	unpin(ctx context.Context) error

	// reader returns a new reader of the partition's messages. Only one goroutine may use the reader.
	reader() leaseReader

	// message converts a message that was read from the stream to a delivery with the consumer sequence number.
	message(raw *jetstream.RawStreamMsg, number uint64) inflight.Incoming

	// receipt returns a token that acknowledges all inputs up to a stream sequence. number is the consumer sequence that
	// the acknowledgement names.
	receipt(sequence, number uint64) pull.AckToken

	// flush waits until the server has processed all messages that were sent over the connection for inputs.
	flush(ctx context.Context) error

	// pull starts a pull from the consumer.
	pull() (leasePull, error)
}

// leaseReader reads messages of a partition from the stream.
type leaseReader interface {
	// read returns the first message at or after a stream sequence, or nil if there is none. It is fastest if each call
	// continues after the message that the last call returned.
	read(ctx context.Context, from uint64) (*jetstream.RawStreamMsg, error)

	// proveEnd returns an error if the stream has a message at or after a sequence. A nil result of read isn't proof,
	// because the server also finds no message if it can't read its files.
	proveEnd(ctx context.Context, from uint64) error
}

// leasePull is a pull from a pinned consumer.
type leasePull interface {
	// next waits for a message. It returns pull.ErrIdle if none arrives within the request's idle time.
	next(ctx context.Context) (inflight.Incoming, error)

	// pin returns the server's id for this client's pin, or an empty string if the client isn't pinned.
	pin() string

	// keep renews the pin of this client while it requests no messages.
	keep() error

	// leave ends the pull. turn is the lease's turn; see pull.Message.Turn. If messages of a later turn have arrived,
	// leave queries the pin of that turn.
	leave(ctx context.Context, turn uint64)
}

// consumerServer implements leaseServer with a partition's consumer on a real server.
type consumerServer struct {
	js        jetstream.JetStream
	requests  *nats.Conn // connection for requests
	inputs    *nats.Conn // connection for inputs
	stream    string
	name      string // name of the consumer
	partition int
	consumer  jetstream.Consumer
	request   pull.Request
	refused   atomic.Bool // see streamReader.refused
	log       *slog.Logger
}

func (s *consumerServer) info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
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

func (s *consumerServer) annotate(ctx context.Context, config jetstream.ConsumerConfig, metadata map[string]string) error {
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
	return &streamReader{js: s.js, inputs: s.inputs, stream: s.stream, filter: fmt.Sprint(s.partition, ".>"), refused: &s.refused, log: s.log}
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

func (s *consumerServer) flush(ctx context.Context) error { return s.inputs.FlushWithContext(ctx) }

func (s *consumerServer) pull() (leasePull, error) {
	p, err := pull.Open(s.inputs, s.request)
	if err != nil {
		return nil, err
	}
	return consumerPull{p}, nil
}

// consumerPull implements leasePull with a real server.
type consumerPull struct{ *pull.Pull }

func (p consumerPull) next(ctx context.Context) (inflight.Incoming, error) {
	m, err := p.Next(ctx)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (p consumerPull) pin() string { return p.Pin() }
func (p consumerPull) keep() error { return p.Keep() }

func (p consumerPull) leave(ctx context.Context, turn uint64) {
	defer p.Stop()
	for m := range p.Rest() {
		if m.Turn() > turn {
			_, _ = p.Claim(ctx, m) // if it fails, the next owner waits until the pin expires
			return
		}
	}
}

// pinOf returns the pin of a partition's consumer, or an empty string if no client is pinned.
func pinOf(info *jetstream.ConsumerInfo) string {
	for _, g := range info.PriorityGroups {
		if g.Group == topology.PriorityGroup {
			return g.PinnedClientID
		}
	}
	return ""
}
