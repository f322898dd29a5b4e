package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
)

// roundLimit bounds the duration of a round. A longer round counts as stuck.
const roundLimit = 5 * time.Minute

// roundFigures holds a round's measurements.
type roundFigures struct {
	took   time.Duration // from before the first delivery until everything is acknowledged
	cpu    time.Duration // processor time of the process in that time
	groups int64         // batches of results; 0 for a worker that stores each result separately
}

// round runs a worker of kind k, which moves l between new streams, and checks the stored results.
func (s *server) round(ctx context.Context, k kind, l load) (r roundFigures, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, roundLimit, fmt.Errorf("a round takes longer than %v: it is stuck, or --seconds is too large", roundLimit))
	defer cancel()
	if err := s.recreate(ctx, k.shape); err != nil {
		return r, err
	}
	if !k.later {
		if err := s.fill(ctx, l); err != nil {
			return r, err
		}
	}
	w := k.make(nil)
	defer func() {
		err = errors.Join(err, w.close())
		if g, ok := w.(grouping); ok {
			r.groups = g.groups()
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	if err := w.ready(ctx, s, l); err != nil {
		return r, err
	}
	runtime.GC() // so that the worker doesn't collect garbage from filling
	if r, err = s.timed(ctx, w, l); err != nil {
		return r, err
	}
	if k.foreign {
		return r, s.counted(ctx, l.n)
	}
	return r, s.check(ctx, expected{load: l, stream: s.in, ops: k.ops, guarantee: k.guarantee})
}

// timed measures how long w takes to move l.
func (s *server) timed(ctx context.Context, w worker, l load) (roundFigures, error) {
	start := now()
	g := newErrGroup(ctx)
	g.start(func(ctx context.Context) error { return w.run(ctx, l) })
	g.start(func(ctx context.Context) (err error) {
		start, err = s.beforeFirstDelivery(ctx, start)
		return err
	})
	err := g.wait()
	if err == nil {
		err = s.waitForAcks(ctx)
	}
	end := now()
	return roundFigures{took: end.at.Sub(start.at), cpu: end.cpu - start.cpu}, err
}

// moment is a time, and the processor time that the process had used by then.
type moment struct {
	at  time.Time
	cpu time.Duration
}

func now() moment { return moment{time.Now(), bench.CPUTime()} }

// beforeFirstDelivery waits for the first delivery of the input stream. It returns the last moment at which no consumer had
// delivered anything: shortly before the first delivery, never after it. The parameter last is an earlier such moment.
//
// Before the first delivery a worker looks up its consumers or takes its partitions. That happens once and takes more
// than a second with exclusive delivery, so it is not measured.
func (s *server) beforeFirstDelivery(ctx context.Context, last moment) (moment, error) {
	for {
		next := now()
		consumers, err := s.states(ctx)
		if err != nil {
			return last, fmt.Errorf("look for the first delivery: %w", err)
		}
		for _, c := range consumers {
			if c.Delivered.Consumer > 0 {
				return last, nil
			}
		}
		last = next
		if err := pause(ctx, s.pollFirst); err != nil {
			return last, err
		}
	}
}

// waitForAcks waits until the server has delivered everything and has every acknowledgement.
func (s *server) waitForAcks(ctx context.Context) error {
	for {
		consumers, err := s.states(ctx)
		waiting := slices.ContainsFunc(consumers, func(c *jetstream.ConsumerInfo) bool { return c.NumPending > 0 || c.NumAckPending > 0 })
		if err == nil && !waiting && len(consumers) > 0 {
			return nil
		}
		if err == nil {
			err = pause(ctx, pollLast)
		}
		if err != nil {
			return fmt.Errorf("not every input was acknowledged: %w", err)
		}
	}
}

// Pauses between two requests to the server: while waiting for the first delivery, which may take long, and for the
// last acknowledgement. They are short compared with a round.
const (
	pollFirst = time.Millisecond
	pollLast  = 200 * time.Microsecond
)
