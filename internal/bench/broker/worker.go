package broker

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/pull"
)

// worker is a worker to measure, for one round.
type worker interface {
	// ready creates objects whose creation is not measured: connections and pipelines. The streams exist, and the input
	// stream is full unless l is published later.
	ready(ctx context.Context, s *server, l load) error

	// run moves every payload of l. It returns when each result is stored and each input's acknowledgement has reached the
	// server.
	run(ctx context.Context, l load) error

	// close undoes ready, even if that failed halfway.
	close() error
}

// grouping is implemented by workers that store the results of several payloads at once.
type grouping interface {
	// groups returns the number of groups after the worker is closed.
	groups() int64
}

// client holds the connections of a worker.
type client struct {
	conns  []*nats.Conn
	js     []jetstream.JetStream // one for each connection
	api    jsapi.API             // of the streams
	stream string                // the input stream
}

// dial opens n connections. On each, window publishes may wait for their acknowledgement.
func (c *client) dial(s *server, name string, n, window int) error {
	c.api, c.stream = s.api, s.in
	for range n {
		nc, err := s.connect(name)
		if err != nil {
			return err
		}
		c.conns = append(c.conns, nc)
		js, err := s.api.New(nc, jetstream.WithPublishAsyncMaxPending(window))
		if err != nil {
			return err
		}
		c.js = append(c.js, js)
	}
	return nil
}

// Expiry and heartbeat of a pull request, as in the worker.
const (
	pullFor   = 3 * time.Second
	heartbeat = time.Second
)

// pull starts a pull from a consumer over nc, as the worker does. It joins the consumer's priority group if there is
// one. The caller stops the pull.
func (c *client) pull(ctx context.Context, nc *nats.Conn, name string) (*pull.Pull, error) {
	js, err := c.api.New(nc)
	if err != nil {
		return nil, err
	}
	from, err := js.Consumer(ctx, c.stream, name)
	if err != nil {
		return nil, err
	}
	r := pull.Request{
		API: c.api, Stream: c.stream, Consumer: name, Messages: pullMessages, Bytes: max(pullBytes, int(nc.MaxPayload())+subjectBytes),
		Expires: pullFor, Heartbeat: heartbeat,
	}
	if groups := from.CachedInfo().Config.PriorityGroups; len(groups) > 0 {
		r.Group = groups[0]
	}
	return pull.Open(nc, r)
}

// received is an input with the time of its arrival.
type received struct {
	jetstream.Msg
	at time.Time
}

// receive pulls n inputs from a consumer and calls hand for each.
func (c *client) receive(ctx context.Context, nc *nats.Conn, name string, n int, hand func(received) error) error {
	messages, err := c.pull(ctx, nc, name)
	if err != nil {
		return err
	}
	defer messages.Stop()
	for range n {
		m, err := messages.Next(ctx)
		if err != nil {
			return err
		}
		if err := hand(received{m, time.Now()}); err != nil {
			return err
		}
	}
	return nil
}

// receiveInto pulls n inputs from a consumer into a channel and closes it.
func (c *client) receiveInto(ctx context.Context, nc *nats.Conn, name string, n int, into chan<- received) error {
	defer close(into)
	return c.receive(ctx, nc, name, n, func(in received) error {
		select {
		case into <- in:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// flush waits until the server has received all earlier messages.
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
