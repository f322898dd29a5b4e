package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
)

// roundLimit is how long a round may take before it counts as stuck.
const roundLimit = 5 * time.Minute

// lap is what a round showed.
type lap struct {
	took   time.Duration // from before the first delivery until everything is acknowledged
	cpu    time.Duration // processor time of the process meanwhile
	groups int64         // batches of results; 0 for a worker that stores each by itself
}

// round has a worker of that kind move l between new streams, and checks what it stored.
func (s *site) round(ctx context.Context, k kind, l load) (r lap, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, roundLimit, fmt.Errorf("a round takes longer than %v: it is stuck, or --seconds is too much", roundLimit))
	defer cancel()
	if err := s.renew(ctx, k.shape); err != nil {
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
		if g, ok := m.(grouping); ok {
			r.groups = g.groups()
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	if err := m.ready(ctx, s, l); err != nil {
		return r, err
	}
	runtime.GC() // what filling left behind is not the worker's to collect
	if r, err = s.timed(ctx, m, l); err != nil {
		return r, err
	}
	return r, s.check(ctx, expected{load: l, stream: s.in, ops: k.ops})
}

// timed has m move l, and takes the time.
func (s *site) timed(ctx context.Context, m mover, l load) (lap, error) {
	consumers, err := s.consumers(ctx)
	if err != nil {
		return lap{}, err
	}
	start := here()
	c := newCrew(ctx)
	c.do(func(ctx context.Context) error { return m.run(ctx, l) })
	c.do(func(ctx context.Context) (err error) {
		start, err = untouched(ctx, consumers, start)
		return err
	})
	if err = c.wait(); err == nil {
		err = acknowledged(ctx, consumers)
	}
	end := here()
	return lap{took: end.at.Sub(start.at), cpu: end.cpu - start.cpu}, err
}

// moment is a time, and how much processor time the process had taken by then.
type moment struct {
	at  time.Time
	cpu time.Duration
}

func here() moment { return moment{time.Now(), bench.CPUTime()} }

// untouched waits for the first delivery of these consumers. It returns the last moment at which they are known to have
// delivered nothing: a little before the first delivery, never behind it. last is one to begin with.
//
// Before that a worker finds out what is its to take, which costs time once, for exclusive delivery more than a second;
// but it has no input, and neither has its client.
func untouched(ctx context.Context, consumers []jetstream.Consumer, last moment) (moment, error) {
	for {
		next := here()
		for _, c := range consumers {
			info, err := c.Info(ctx)
			if err != nil {
				return last, fmt.Errorf("ask for the first delivery: %w", err)
			}
			if info.Delivered.Consumer > 0 {
				return last, nil
			}
		}
		last = next
		if err := pause(ctx, askFirst); err != nil {
			return last, err
		}
	}
}

// acknowledged returns once the server has nothing left to deliver and no acknowledgement left to come.
func acknowledged(ctx context.Context, consumers []jetstream.Consumer) error {
	for _, c := range consumers {
		for {
			info, err := c.Info(ctx)
			if err == nil && info.NumPending == 0 && info.NumAckPending == 0 {
				break
			}
			if err == nil {
				err = pause(ctx, askAgain)
			}
			if err != nil {
				return fmt.Errorf("not every input was acknowledged: %w", err)
			}
		}
	}
	return nil
}

// Pauses between two questions how far the server is, short beside a round: for the first delivery, which may be long in
// coming, and for the last acknowledgement.
const (
	askFirst = time.Millisecond
	askAgain = 200 * time.Microsecond
)
