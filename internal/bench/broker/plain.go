package broker

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/operator"
)

// plain is a worker in plain Go with the operators' references on all cores: what somebody would write who has no
// GPU and no batches. It stores and acknowledges as nullAsync does.
type plain struct {
	client
	ops []operator.Operator
}

func (w *plain) ready(_ context.Context, s *site, _ load) error {
	return w.dial(s, "go-worker", 1, 2*sendWindow)
}

// handOver is how many inputs may wait between the pull and the goroutines that compute, as in the worker.
const handOver = 256

func (w *plain) run(ctx context.Context, l load) error {
	c := newCrew(ctx)
	out := newSender(w.js[0])
	inputs := make(chan received, handOver)
	c.do(func(ctx context.Context) error { return out.settle(ctx, l.n) })
	c.do(func(ctx context.Context) error { return w.receive(ctx, w.nc, consumer, l.n, inputs) })
	for range runtime.GOMAXPROCS(0) {
		c.do(func(ctx context.Context) error { return w.compute(ctx, inputs, out) })
	}
	if err := c.wait(); err != nil {
		return err
	}
	return w.flush(ctx)
}

// received is an input in hand.
type received struct {
	jetstream.Msg
	at time.Time
}

// receive pulls n inputs from a consumer into a channel, which it closes.
func (c *client) receive(ctx context.Context, nc *nats.Conn, name string, n int, into chan<- received) error {
	defer close(into)
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
		select {
		case into <- received{m, time.Now()}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// compute is one of the goroutines that compute.
func (w *plain) compute(ctx context.Context, inputs <-chan received, out *sender) error {
	records := make([][]byte, len(w.ops))
	names := specs(w.ops)
	for in := range inputs {
		for i, op := range w.ops {
			records[i] = op.AppendReference(records[i][:0], in.Data())
		}
		body := operator.JSON.Append(nil, w.ops, len(in.Data()), records)
		if err := out.send(ctx, in.Msg, in.at, names, body); err != nil {
			return err
		}
	}
	return nil
}

// specs are the operators as a header names them.
func specs(ops []operator.Operator) string {
	var names []string
	for _, op := range ops {
		names = append(names, op.String())
	}
	return strings.Join(names, ",")
}
