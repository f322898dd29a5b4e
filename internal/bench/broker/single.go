package broker

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
	"millrace/internal/operator"
)

// single is a worker that stores each result and acknowledges each input separately, with the shape of Millrace's
// shared delivery: one pull. With operators it computes their references in plain Go on all cores, without a GPU and
// without batches.
type single struct {
	client
	name string              // name of its connection
	ops  []operator.Operator // nil: it computes nothing
	took func(time.Duration) // receives the time of each payload from received to stored; nil for none

	window chan sent
}

// sent is a result that is not confirmed yet.
type sent struct {
	received
	ack jetstream.PubAckFuture
}

// sendWindow is how many results may wait for the server's confirmation, as in the worker.
const sendWindow = 4096

// inputBuffer is how many inputs may wait between the pull and the goroutines that use them, as in the worker.
const inputBuffer = 256

func (w *single) ready(_ context.Context, s *server, _ load) error {
	w.window = make(chan sent, sendWindow)
	return w.dial(s, w.name, 1, 2*sendWindow)
}

func (w *single) run(ctx context.Context, l load) error {
	g := newErrGroup(ctx)
	g.start(func(ctx context.Context) error { return w.settle(ctx, l.n) })
	if w.ops == nil {
		null := l.null()
		g.start(func(ctx context.Context) error {
			return w.receive(ctx, w.conns[0], consumer, l.n, func(in received) error {
				m, err := null.message(in)
				return w.send(ctx, in, m, err)
			})
		})
	} else {
		inputs := make(chan received, inputBuffer)
		g.start(func(ctx context.Context) error { return w.receiveInto(ctx, w.conns[0], consumer, l.n, inputs) })
		for range runtime.GOMAXPROCS(0) {
			g.start(func(ctx context.Context) error { return w.compute(ctx, inputs) })
		}
	}
	if err := g.wait(); err != nil {
		return err
	}
	return w.flush(ctx)
}

// compute computes and sends results until inputs is closed.
func (w *single) compute(ctx context.Context, inputs <-chan received) error {
	records := make([][]byte, len(w.ops))
	names := bench.Specs(w.ops)
	for in := range inputs {
		for i, op := range w.ops {
			records[i] = op.AppendReference(records[i][:0], in.Data())
		}
		m, err := result(in, names, operator.JSON.Append(nil, w.ops, len(in.Data()), records))
		if err := w.send(ctx, in, m, err); err != nil {
			return err
		}
	}
	return nil
}

// send publishes m, the result of in, without waiting for the confirmation. If m could not be made, err says why. Several
// goroutines may call it.
func (w *single) send(ctx context.Context, in received, m *nats.Msg, err error) error {
	if err != nil {
		return err
	}
	ack, err := w.js[0].PublishMsgAsync(m, jetstream.WithStallWait(answerTimeout))
	if err != nil {
		return fmt.Errorf("store a result: %w", err)
	}
	select {
	case w.window <- sent{in, ack}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle waits until n results are stored and acknowledges their inputs.
func (w *single) settle(ctx context.Context, n int) error {
	for range n {
		var next sent
		select {
		case next = <-w.window:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-next.ack.Ok():
		case err := <-next.ack.Err():
			return fmt.Errorf("store a result: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
		if w.took != nil {
			w.took(time.Since(next.at))
		}
		if err := next.Ack(); err != nil {
			return fmt.Errorf("acknowledge an input: %w", err)
		}
	}
	return nil
}
