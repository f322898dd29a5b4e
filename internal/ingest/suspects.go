package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
)

// suspects is how careful pulling reaches the server and the devices. It belongs to the source's goroutine.
type suspects struct {
	w       *Worker
	src     *source
	trier   *trier
	hard    context.Context // what is on a device is finished after the end of intake, until this ends
	largest int             // messages that one pull request may ask for
}

const (
	// askTimeout bounds how long a question to the server may take.
	askTimeout = 2 * time.Second

	// fetchWait is how long a fetch waits for a payload. With the end of intake nothing ends it sooner: what the server
	// had on the way would be lost to this worker until AckWait.
	fetchWait = 250 * time.Millisecond

	// longestNak is the longest delay with which a worker gives a payload back.
	longestNak = time.Minute
)

// newCareful makes what the source pulls with while suspects are about.
func (w *Worker) newCareful(hard context.Context, src *source) *careful {
	return &careful{
		around: &suspects{w: w, src: src, trier: w.newTrier(), hard: hard, largest: src.size.Messages},
		levels: w.levels, most: w.maxBytes, hand: hand{g: w.pool.NewBatch()},
		caution: caution{horizon: w.ackWait + longestNak},
	}
}

func (s *suspects) now() time.Time { return time.Now() }

func (s *suspects) fetch(_ context.Context, n int, wait bool, take func(inflight.Delivery)) (came int, err error) {
	patience := time.Duration(0)
	if wait {
		patience = min(fetchWait, pull.BeatsPerRequest*s.src.size.Beat)
	}
	s.src.handing.Store(false)
	defer s.src.handing.Store(true)
	return pull.Fetch(s.w.nc, s.src.request(), min(n, s.largest), patience, func(msg *pull.Message) {
		if d, ok := s.src.receive(s.hard, msg, true); ok {
			take(d)
		}
	})
}

func (s *suspects) outstanding(ctx context.Context) (all, redelivered int, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := s.src.consumer.Info(ctx)
	if err != nil {
		return 0, 0, err
	}
	return info.NumAckPending, info.NumRedelivered, nil
}

// quiet flushes the acknowledgements too: one that a crash kept from the server would make a suspect of what is done.
// Without a connection there is nothing to be done about that.
func (s *suspects) quiet(ctx context.Context, mine int) error {
	if s.w.ledger.await(ctx, mine) != nil {
		return nil // the caller sees it by ctx
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := s.w.conns.Flush(ctx); err != nil && s.w.conns.Closed() {
		return err
	}
	return nil
}

// flow hands fresh payloads on, as the pull does: a stop finds them in hand, and they are finished.
func (s *suspects) flow(_ context.Context, g *inflight.Batch, items []int) error {
	for _, i := range items {
		g.Settle(i)
		s.src.hand(s.hard, g.HandOver(i))
	}
	return nil
}

// try takes another device with each level where there are several: a payload that has lost one may be unlucky.
func (s *suspects) try(_ context.Context, g *inflight.Batch, items []int) error {
	d := &g.Items[items[0]]
	pipe := s.w.pipes[d.Level%len(s.w.pipes)]
	run := s.trier.try
	if d.Level >= s.w.levels.alone() && len(items) == 1 {
		run = s.tryAlone
	}
	err := run(s.hard, pipe, g, items)
	for _, i := range items {
		s.w.pool.Release(&g.Items[i])
	}
	if errors.Is(err, context.Canceled) {
		return nil // the drain ran out of time, and the worker gives back what is left
	}
	return err
}

// leave takes what is left in hand when intake has ended.
func (c *careful) leave(unread func(inflight.Delivery)) {
	for _, i := range c.hand.left {
		c.hand.g.Settle(i)
		unread(c.hand.g.HandOver(i))
	}
	c.hand.left = nil
}

// levelOf is how suspect a delivery is. One that this process gave back is not, since the process lives; unless it failed
// alone and nothing has come right since, or comes more often than the limit allows: those are tried alone. The count alone
// gives nothing up, since it says nothing about what was tried: workers may have died or given it back for any other reason.
func (w *Worker) levelOf(d *inflight.Delivery) int {
	level := d.NumDelivered - 1
	if w.ledger.gaveBack(d) {
		level = 0
	}
	if d.NumDelivered > w.limit || w.isHeldBack(d) {
		level = max(level, w.levels.alone())
	}
	return level
}

func (w *Worker) isHeldBack(d *inflight.Delivery) bool {
	for _, e := range w.evidence {
		if e.holds(d) {
			return true
		}
	}
	return false
}

// lastChance says whether the server will not deliver a payload again, because the consumer has a limit of its own, so that
// all that can be done is to keep it as a dead letter.
func (w *Worker) lastChance(d *inflight.Delivery) bool {
	return w.last > 0 && d.NumDelivered >= w.last && d.NumDelivered > w.limit
}

func tooOften(d *inflight.Delivery) error {
	return fmt.Errorf("delivery %d, and the consumer's own MaxDeliver allows no more", d.NumDelivered)
}
