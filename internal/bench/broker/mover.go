package broker

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/pull"
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

// grouping is a mover that stores the results of several payloads at once.
type grouping interface {
	// groups is how many such there were, once it is closed.
	groups() int64
}

// client is a mover's connections, for the movers that are no Millrace.
type client struct {
	nc     *nats.Conn // the first
	conns  []*nats.Conn
	js     []jetstream.JetStream // of each
	stream string                // of the inputs
}

// dial opens n connections. window is how many publishes may wait for their acknowledgement on each.
func (c *client) dial(s *site, name string, n, window int) error {
	c.stream = s.in
	for range n {
		nc, err := s.connect(name)
		if err != nil {
			return err
		}
		c.conns = append(c.conns, nc)
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(window))
		if err != nil {
			return err
		}
		c.js = append(c.js, js)
	}
	c.nc = c.conns[0]
	return nil
}

// How a pull lasts and is kept alive, as in the worker.
const (
	pullFor   = 3 * time.Second
	heartbeat = time.Second
)

// pull starts to pull from a consumer over nc, as the worker does: it takes a turn in the consumer's priority group, if it
// has one. The caller stops it.
func (c *client) pull(ctx context.Context, nc *nats.Conn, name string) (*pull.Pull, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	from, err := js.Consumer(ctx, c.stream, name)
	if err != nil {
		return nil, err
	}
	r := pull.Request{
		Stream: c.stream, Consumer: name, Messages: pullMessages, Bytes: max(pullBytes, int(nc.MaxPayload())+subjectBytes),
		Expires: pullFor, Heartbeat: heartbeat,
	}
	if groups := from.CachedInfo().Config.PriorityGroups; len(groups) > 0 {
		r.Group = groups[0]
	}
	return pull.Open(nc, r)
}

// flush returns when the server has everything that was sent.
func (c *client) flush(ctx context.Context) error {
	for _, nc := range c.conns {
		if err := nc.FlushWithContext(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) close() error {
	for _, nc := range c.conns {
		nc.Close()
	}
	return nil
}
