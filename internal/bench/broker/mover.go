package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
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

// roundLimit is how long a round may take before it counts as stuck.
const roundLimit = 5 * time.Minute

// lap is what a round showed.
type lap struct {
	took time.Duration // from the first pull until everything is acknowledged
	cpu  time.Duration // processor time of the process meanwhile
}

// round has a worker of that kind move l between new streams, and checks what it stored.
func (s *site) round(ctx context.Context, k kind, l load) (r lap, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, roundLimit, fmt.Errorf("a round takes longer than %v: it is stuck, or --seconds is too much", roundLimit))
	defer cancel()
	if err := s.renew(ctx, k.partitioned); err != nil {
		return r, err
	}
	if !k.later {
		if err := s.fill(ctx, l); err != nil {
			return r, err
		}
	}
	m := k.make()
	defer func() {
		err = errors.Join(err, m.close())
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	if err := m.ready(ctx, s, l); err != nil {
		return r, err
	}
	runtime.GC() // what filling left behind is not the worker's to collect
	cpu, start := bench.CPUTime(), time.Now()
	err = m.run(ctx, l)
	if err == nil {
		err = s.acknowledged(ctx, k.partitioned)
	}
	r = lap{took: time.Since(start), cpu: bench.CPUTime() - cpu}
	if err != nil {
		return r, err
	}
	return r, s.check(ctx, expected{load: l, stream: s.in, ops: k.ops})
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

// pull starts to pull from a consumer. The messages end when ctx does.
func (c *client) pull(ctx context.Context, name string) (messages jetstream.MessagesContext, err error) {
	from, err := c.js.Consumer(ctx, c.stream, name)
	if err != nil {
		return nil, err
	}
	if messages, err = from.Messages(pullBounds(c.nc)); err != nil {
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
