package broker

import (
	"context"
	"time"
)

// nullAsync is a worker that computes nothing, with the shape of Millrace's shared delivery: one pull. It stores each
// result and acknowledges each input separately.
type nullAsync struct {
	client
	stored func(since time.Time) // see sender
}

func (w *nullAsync) ready(_ context.Context, s *server, _ load) error {
	return w.dial(s, "null-async", 1, 2*sendWindow)
}

func (w *nullAsync) run(ctx context.Context, l load) error {
	g := newErrGroup(ctx)
	out := newSender(w.js[0])
	out.stored = w.stored
	g.start(func(ctx context.Context) error { return out.settle(ctx, l.n) })
	g.start(func(ctx context.Context) error {
		messages, err := w.pull(ctx, w.nc, consumer)
		if err != nil {
			return err
		}
		defer messages.Stop()
		body := nullBody(l.size)
		for range l.n {
			in, err := messages.Next(ctx)
			if err != nil {
				return err
			}
			if err := out.send(ctx, in, time.Now(), nullOperators, body); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.wait(); err != nil {
		return err
	}
	return w.flush(ctx)
}
