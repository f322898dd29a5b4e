package partitioned

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
)

// leaseServer contains all requests that a lease makes to the server. Time is not part of it: tests run a lease in a
// testing/synctest bubble, which has its own clock for timers and timeouts.
type leaseServer interface {
	// info returns the state of the partition's consumer.
	info(ctx context.Context) (*jetstream.ConsumerInfo, error)

	// reset makes the consumer deliver again from its acknowledgement floor on, with consumer sequences from 1 (nats-server 2.14
	// or later). info is the consumer's state, which contains the floor. The request may arrive late, under another owner. That
	// owner then receives the same deliveries again and misses none, even if the first of them are lost.
	reset(ctx context.Context, info *jetstream.ConsumerInfo) error

	// annotate replaces the metadata of the consumer that has that configuration.
	annotate(ctx context.Context, config jetstream.ConsumerConfig, metadata map[string]string) error

	// unpin removes the pin, so that another client can be pinned.
	unpin(ctx context.Context) error

	// read returns the first message of the partition from a stream sequence on, or nil if there is none.
	read(ctx context.Context, from uint64) (*jetstream.RawStreamMsg, error)

	// message returns a message that was read as the consumer's number-th delivery.
	message(raw *jetstream.RawStreamMsg, number uint64) inflight.Incoming

	// flush returns when the server has processed everything that was sent over the connection for inputs.
	flush(ctx context.Context) error

	// pull starts a pull.
	pull() (leasePull, error)
}

// leasePull is a pull from a pinned consumer.
type leasePull interface {
	// next waits for a message. It returns pull.ErrIdle if none arrives for a while.
	next(ctx context.Context) (inflight.Incoming, error)

	// pin returns the server's id for this client's turn, or empty if it has no turn.
	pin() string

	// keep tells the server to keep this client pinned.
	keep() error

	// leave ends the pull. If messages of a turn after that one have arrived, it queries the pin of that later turn.
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
}

func (s *consumerServer) info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	return s.consumer.Info(ctx)
}

func (s *consumerServer) reset(ctx context.Context, info *jetstream.ConsumerInfo) error {
	if info.Config.DeliverPolicy != jetstream.DeliverAllPolicy { // the server refuses a start sequence with most other policies
		_, err := s.js.ResetConsumer(ctx, s.stream, s.name)
		return err
	}
	_, err := s.js.ResetConsumerToSequence(ctx, s.stream, s.name, info.AckFloor.Stream+1)
	return err
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

func (s *consumerServer) read(ctx context.Context, from uint64) (*jetstream.RawStreamMsg, error) {
	return readNext(ctx, s.requests, s.stream, from, fmt.Sprint(s.partition, ".>"))
}

func (s *consumerServer) message(raw *jetstream.RawStreamMsg, number uint64) inflight.Incoming {
	return pull.Stored(s.inputs, s.stream, s.name, number, raw)
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
			_, _ = p.Claim(ctx, m) // without the pin the next owner must wait until the server drops it
			return
		}
	}
}

// pinOf returns the pin of a partition's consumer, or empty if no client is pinned.
func pinOf(info *jetstream.ConsumerInfo) string {
	for _, g := range info.PriorityGroups {
		if g.Group == topology.PriorityGroup {
			return g.PinnedClientID
		}
	}
	return ""
}

// readNext reads the first message of a stream from a sequence on with a matching subject, or nil if there is none. Unlike the
// client library, it also returns a message whose headers cannot be parsed, but without the headers. They may be why it never
// arrived.
func readNext(ctx context.Context, nc *nats.Conn, stream string, from uint64, filter string) (*jetstream.RawStreamMsg, error) {
	request, err := json.Marshal(map[string]any{"seq": from, "next_by_subj": filter})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	msg, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, request)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return nil, err
	}
	if e := answer.Error; e != nil {
		if e.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return nil, nil
		}
		return nil, e
	}
	m := answer.Message
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		header = nil
	}
	return &jetstream.RawStreamMsg{Subject: m.Subject, Sequence: m.Sequence, Header: header, Data: m.Data, Time: m.Time}, nil
}
