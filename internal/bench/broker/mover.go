package broker

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// mover is a worker under measurement, for one round.
type mover interface {
	// ready makes what is not measured: connections, pipelines. The streams are there, and full unless l is
	// still to come.
	ready(ctx context.Context, s *site, l load) error

	// run moves every payload of l: it returns when each result is stored and each input's acknowledgement is
	// sent and has reached the server.
	run(ctx context.Context, l load) error

	// close gives back what ready took, however far that came.
	close() error
}

// client is a mover's connection, for the movers that are no Millrace.
type client struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	stream string // of the inputs
}

// dial opens it. window is how many publishes may wait for their acknowledgement.
func (c *client) dial(s *site, name string, window int) (err error) {
	c.stream = s.in
	if c.nc, err = s.connect(name); err != nil {
		return err
	}
	c.js, err = jetstream.New(c.nc, jetstream.WithPublishAsyncMaxPending(window))
	return err
}

// heartbeat is how often the server says that a pull is still alive. After two that did not come the client pulls anew. It has
// to, now and then: where few messages fill a pull, all can be there before the client knows that it has asked for them, and
// then it asks for no more. Such a round shows a second's pause.
const heartbeat = 500 * time.Millisecond

// pull starts to pull from a consumer. The messages end when ctx does.
func (c *client) pull(ctx context.Context, name string) (messages jetstream.MessagesContext, err error) {
	from, err := c.js.Consumer(ctx, c.stream, name)
	if err != nil {
		return nil, err
	}
	messages, err = from.Messages(pullBounds(c.nc), jetstream.PullHeartbeat(heartbeat), jetstream.WithMessagesErrOnMissingHeartbeat(false))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, messages.Stop)
	return messages, nil
}

func (c *client) close() error {
	if c.nc != nil {
		c.nc.Close()
	}
	return nil
}
