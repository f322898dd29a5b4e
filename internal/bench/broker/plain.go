package broker

import (
	"context"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
	"millrace/internal/operator"
)

// plain is a worker in plain Go that computes the operators' references on all cores, without a GPU and without batches.
// It stores and acknowledges like nullAsync.
type plain struct {
	client
	ops []operator.Operator
}

func (w *plain) ready(_ context.Context, s *server, _ load) error {
	return w.dial(s, "go-worker", 1, 2*sendWindow)
}

// inputBuffer is how many inputs may wait between the pull and the goroutines that use them, as in the worker.
const inputBuffer = 256

func (w *plain) run(ctx context.Context, l load) error {
	g := newErrGroup(ctx)
	out := newSender(w.js[0])
	inputs := make(chan received, inputBuffer)
	g.start(func(ctx context.Context) error { return out.settle(ctx, l.n) })
	g.start(func(ctx context.Context) error { return w.receive(ctx, w.nc, consumer, l.n, inputs) })
	for range runtime.GOMAXPROCS(0) {
		g.start(func(ctx context.Context) error { return w.compute(ctx, inputs, out) })
	}
	if err := g.wait(); err != nil {
		return err
	}
	return w.flush(ctx)
}

// received is an input with the time of its arrival.
type received struct {
	jetstream.Msg
	at time.Time
}

// receive pulls n inputs from a consumer into a channel and closes it.
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

// compute computes and sends results until inputs is closed.
func (w *plain) compute(ctx context.Context, inputs <-chan received, out *sender) error {
	records := make([][]byte, len(w.ops))
	names := bench.Specs(w.ops)
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
