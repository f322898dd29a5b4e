package partitioned

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/partitioned/partition"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/topology"
)

// pullFor is how long a pull request lasts, and how often the server hears of a worker that is behind.
const pullFor = time.Second

// A lease takes deliveries from the first one that the server sends this worker, in order and without a gap, and passes
// them on to the goroutine that fills batches.

// read takes deliveries and passes them on, until ctx is done or the lease cannot go on. It closes out.
func (l *lease) read(ctx, drainCtx context.Context) error {
	defer l.out.Close()
	var err error
	if l.pull, err = l.server.pull(); err != nil {
		return err
	}
	defer func() { l.pull.leave(drainCtx, l.turn) }()
	keeping, over := context.WithCancel(ctx)
	defer over()
	go l.keepTurn(keeping)
	var stale staleDeliveries
	var d inflight.Delivery // one for all: it escapes to the host
	for {
		d = inflight.Delivery{} // while it waits it holds no message
		if d, err = l.next(ctx, drainCtx); err != nil {
			return err
		}
		if !l.begun {
			// A stop doesn't interrupt this: half begun it could not be given up, and what it had would wait for AckWait.
			if err := l.begin(drainCtx, &d); err != nil {
				return err
			}
			stale = staleDeliveries{expected: d.ConsumerSequence != 1, since: time.Now()}
		}
		if stale.includes(d.ConsumerSequence) {
			if time.Since(stale.since) > topology.PinnedFor {
				return errGap // the first deliveries after the reset got lost
			}
			continue
		}
		if err := l.take(ctx, drainCtx, &d); err != nil {
			return err
		}
	}
}

// staleDeliveries tells deliveries that the server sent before it reset the consumer from later ones. Their numbers rise; those
// after the reset start from 1. An acknowledgement of a stale one would name a number that the server has yet to give.
type staleDeliveries struct {
	expected bool // none was found to be later yet
	last     uint64
	since    time.Time // when the consumer was reset
}

// includes reports whether the delivery with that number is stale.
func (s *staleDeliveries) includes(number uint64) bool {
	s.expected = s.expected && number > s.last
	s.last = number
	return s.expected
}

// keepTurn has the server leave the partition to this worker while the device is behind and nothing is pulled. A worker that
// the server doesn't answer stops doing so: its batches can't be finished, and another should have the partition.
func (l *lease) keepTurn(ctx context.Context) {
	for retry.Sleep(ctx, pullFor) {
		answered, cancel := context.WithTimeout(ctx, pullFor)
		err := l.server.flush(answered)
		cancel()
		if err == nil {
			err = l.pull.keep()
		}
		if err != nil {
			l.log.Debug("could not keep the partition", "error", err)
		}
	}
}

// next waits for a delivery. While none arrives it checks the consumer now and then.
func (l *lease) next(ctx, drainCtx context.Context) (inflight.Delivery, error) {
	for {
		msg, err := l.pull.next(ctx)
		switch {
		case err == nil:
			d, err := inflight.NewDelivery(msg, time.Now())
			if err != nil {
				return inflight.Delivery{}, err
			}
			d.Subject = topology.PartitionSubject(msg.Subject())
			return d, nil
		case ctx.Err() != nil:
			return inflight.Delivery{}, ctx.Err()
		case errors.Is(err, pull.ErrIdle):
			if err := l.checkConsumer(ctx, drainCtx); err != nil {
				return inflight.Delivery{}, err
			}
		default:
			return inflight.Delivery{}, err
		}
	}
}

// begin looks at the consumer when the server has chosen this worker, with d as the first message. If that is not the first
// delivery that the consumer ever made, another worker may have earlier ones. Then the consumer is reset: it delivers again
// from its acknowledgement floor, with numbers from 1.
func (l *lease) begin(ctx context.Context, d *inflight.Delivery) error {
	l.turn = d.Turn
	info, err := l.server.info(ctx)
	if err != nil {
		return err
	}
	l.before, l.doubtful = deliveredBefore(info, d.ConsumerSequence)
	l.doubtful = l.doubtful || l.host.upgrading()
	if err := l.takeOver(ctx, info); err != nil {
		return err
	}
	l.host.began()
	l.begun = true
	l.log.Debug("has the partition", "floor", info.AckFloor.Stream, "pin", l.pinned(), "first", d.ConsumerSequence)
	if d.ConsumerSequence == 1 {
		return nil
	}
	if err := l.server.reset(ctx); err != nil {
		return fmt.Errorf("have the consumer start again from its floor (nats-server 2.14 or later): %w", err)
	}
	return nil
}

// take enters a delivery, and passes it on if it has to be processed.
func (l *lease) take(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	l.host.handing(true)
	defer l.host.handing(false)
	if d.Turn != l.turn {
		return errPinLost
	}
	l.host.pending(d.Pending)
	if err := l.noteReset(ctx, d.ConsumerSequence); err != nil {
		return err
	}
	verdict, first := l.enter(d)
	if verdict == partition.Gap {
		if err := l.fill(ctx, drainCtx, d.Sequence); err != nil {
			return err
		}
		verdict, first = l.enter(d)
	}
	switch verdict {
	case partition.New:
		return l.passOn(ctx, drainCtx, d, first)
	case partition.Known:
		l.host.redelivered()
		return l.acknowledgeAgain(ctx, drainCtx, d.Sequence)
	}
	return errGap
}

// enter has the floor judge a delivery, and reports whether it is of the first input above the acknowledgement floor.
func (l *lease) enter(d *inflight.Delivery) (v partition.Verdict, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.floor.Highest() == l.caution.Floor
	if v = l.floor.Take(d.ConsumerSequence, d.Sequence, d.NumDelivered > 1); v != partition.Gap {
		l.taken = d.ConsumerSequence
	}
	return v, first
}

// passOn gives a new delivery to the goroutine that fills batches, unless it becomes a dead letter at once.
func (l *lease) passOn(ctx, drainCtx context.Context, d *inflight.Delivery, first bool) error {
	if !l.host.hold(ctx, d) {
		return ctx.Err()
	}
	if err := l.judgeFirst(drainCtx, d); err != nil {
		l.host.release(d)
		return err
	}
	switch {
	case first && l.caution.GiveUp() && l.accused == d.Sequence:
		return l.publishDeadLetter(drainCtx, *d, results.DeviceFault, errors.New("it was alone on a device that had just computed right, and the device or the worker was lost each time"))
	case len(d.Msg.Data()) > l.maxBytes:
		return l.publishDeadLetter(drainCtx, *d, results.TooLarge, results.ErrExceedsBatch(len(d.Msg.Data()), l.maxBytes))
	}
	if !l.out.Put(ctx, *d) {
		l.host.release(d)
		return ctx.Err()
	}
	return nil
}

// publishDeadLetter stores a dead letter before anything behind it is taken. If that fails the lease ends: nothing behind it
// may be acknowledged.
func (l *lease) publishDeadLetter(drainCtx context.Context, d inflight.Delivery, why results.Reason, cause error) error {
	defer l.host.release(&d)
	if err := l.host.publishDeadLetter(drainCtx, &d, why, cause); err != nil {
		return err
	}
	l.mu.Lock()
	alone := l.floor.Open() == 1
	l.floor.Settle(d.Sequence)
	l.receipts[d.Sequence] = d.Msg.Receipt()
	l.host.keepReceipts(1)
	l.mu.Unlock()
	if !alone {
		return nil // it is acknowledged with what is before it
	}
	return l.acknowledge(drainCtx, nil)
}
