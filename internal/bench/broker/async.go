package broker

import (
	"context"
	"time"
)

// nullAsync is the worker that computes nothing, of the shape of Millrace's shared delivery: one pull, each result
// stored by itself, each input acknowledged by itself.
type nullAsync struct {
	client
	stored func(since time.Time) // see sender
}

func (w *nullAsync) ready(_ context.Context, s *site, _ load) error {
	return w.dial(s, "null-async", 1, 2*sendWindow)
}

func (w *nullAsync) run(ctx context.Context, l load) error {
	c := newCrew(ctx)
	out := newSender(w.js[0])
	out.stored = w.stored
	c.do(func(ctx context.Context) error { return out.settle(ctx, l.n) })
	c.do(func(ctx context.Context) error {
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
	if err := c.wait(); err != nil {
		return err
	}
	return w.flush(ctx)
}
