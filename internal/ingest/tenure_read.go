package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/partition"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/topology"
)

// How a tenure takes what the server delivers: from the first sign that it is this worker's turn, in order and without a
// gap, to who fills batches.

// pull asks for the partition's messages.
func (t *tenure) pull() (*pull.Pull, error) {
	size := t.w.pullSize(t.consumer)
	return pull.Open(t.nc, pull.Request{
		Stream: t.w.opts.Stream, Consumer: t.consumer.CachedInfo().Name, Group: topology.PriorityGroup,
		Messages: size.Messages, Limit: size.Limit(t.nc), Expires: pullFor, Heartbeat: pullFor / 2, Idle: topology.PinnedFor,
	})
}

// read takes deliveries and hands them on, until ctx is done or the tenure cannot go on. It closes out.
func (t *tenure) read(ctx, hard context.Context, out *inflight.Queue) error {
	defer out.Close()
	messages, err := t.pull()
	if err != nil {
		return err
	}
	defer t.leave(hard, messages)
	keeping, over := context.WithCancel(ctx)
	defer over()
	go t.keepTurn(keeping, messages)
	t.out = out
	stale := false // what comes may have been delivered before the consumer started again
	var since time.Time
	for {
		d, err := t.next(ctx, hard, messages)
		if err != nil {
			return err
		}
		if t.pin == "" {
			t.pin, t.turn = messages.Pin(), d.Turn
		}
		if !t.begun {
			// Not cut off by a stop: half begun it could not be given up, and what it had would wait for AckWait.
			if err := t.begin(hard, &d); err != nil {
				return err
			}
			stale, since = d.ConsumerSequence != 1, time.Now()
		}
		if stale = stale && d.ConsumerSequence > fillMost; stale {
			if time.Since(since) > topology.PinnedFor {
				return errGap // the first delivery of the new start got lost
			}
			continue
		}
		if err := t.take(ctx, hard, d); err != nil {
			return err
		}
	}
}

// leave ends the pull. Of a tenure that never came to what the server had delivered, that says at least by which pin it did.
func (t *tenure) leave(hard context.Context, messages *pull.Pull) {
	if t.pin == "" {
		for m := range messages.Rest() {
			var err error
			if t.pin, err = messages.Claim(hard, m); err != nil {
				t.log.Debug("could not learn the pin", "error", err)
			}
			break
		}
	}
	messages.Stop()
}

// keepTurn has the server leave the partition to this worker while the device is behind and nothing is pulled. A worker that
// hears nothing does not: what it has in hand comes to no end, and another is to have the partition.
func (t *tenure) keepTurn(ctx context.Context, messages *pull.Pull) {
	for retry.Sleep(ctx, pullFor) {
		heard, cancel := context.WithTimeout(ctx, pullFor)
		err := t.nc.FlushWithContext(heard)
		cancel()
		if err == nil {
			err = messages.Keep()
		}
		if err != nil {
			t.log.Debug("could not keep the partition", "error", err)
		}
	}
}

// next waits for a delivery. While there is none it looks now and then whether the consumer is as it should be.
func (t *tenure) next(ctx, hard context.Context, messages *pull.Pull) (inflight.Delivery, error) {
	for {
		msg, err := messages.Next(ctx)
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
			if err := t.lookAfter(ctx, hard); err != nil {
				return inflight.Delivery{}, err
			}
		default:
			return inflight.Delivery{}, err
		}
	}
}

// begin looks at the consumer when the server has chosen this worker, of which d is the first sign. Where that is not the
// first delivery that the consumer ever made, somebody may have others: then it has to start again from its
// acknowledgement floor, and numbers from 1 again.
func (t *tenure) begin(ctx context.Context, d *inflight.Delivery) error {
	info, err := t.consumer.Info(ctx)
	if err != nil {
		return err
	}
	t.before, t.doubtful = deliveredBefore(info, d.ConsumerSequence)
	t.doubtful = t.doubtful || t.w.results.Upgrading()
	if err := t.takeOver(ctx, info); err != nil {
		return err
	}
	t.e.members.Has(t.partition, true)
	t.e.custody.began(t.partition, time.Now())
	t.begun = true
	t.log.Debug("has the partition", "floor", info.AckFloor.Stream, "pin", t.pin, "first", d.ConsumerSequence)
	if d.ConsumerSequence == 1 {
		return nil
	}
	if _, err := t.e.js.ResetConsumer(ctx, t.w.opts.Stream, info.Name); err != nil {
		return fmt.Errorf("have the consumer start again from its floor (nats-server 2.14 or later): %w", err)
	}
	return nil
}

// take enters a delivery and hands it on, if it is to be processed.
func (t *tenure) take(ctx, hard context.Context, d inflight.Delivery) error {
	t.e.handing[t.partition].Store(true)
	defer t.e.handing[t.partition].Store(false)
	if d.Turn != t.turn {
		return errPinLost
	}
	t.e.backlog.heard(t.partition, d.Pending)
	verdict, first := t.enter(&d)
	if verdict == partition.Gap {
		if err := t.fill(ctx, hard, d.Sequence); err != nil {
			return err
		}
		verdict, first = t.enter(&d)
	}
	switch verdict {
	case partition.New:
		return t.hand(ctx, hard, d, first)
	case partition.Known:
		t.w.observer.Redelivered()
		return t.acknowledgeAgain(ctx, hard, d.Sequence)
	}
	return errGap
}

// enter has the floor judge a delivery, and says whether it is of the first input above the acknowledgement floor.
func (t *tenure) enter(d *inflight.Delivery) (v partition.Verdict, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first = t.floor.Highest() == t.caution.Floor
	if v = t.floor.Take(d.ConsumerSequence, d.Sequence, d.NumDelivered > 1); v != partition.Gap {
		t.taken = d.ConsumerSequence
	}
	return v, first
}

// hand gives a new delivery to who fills batches, if it is to be processed.
func (t *tenure) hand(ctx, hard context.Context, d inflight.Delivery, first bool) error {
	if !t.w.pool.Hold(ctx, &d) {
		return ctx.Err()
	}
	if err := t.judgeFirst(hard, &d); err != nil {
		t.w.pool.Release(&d)
		return err
	}
	switch {
	case first && t.caution.GiveUp() && t.accused == d.Sequence:
		return t.bury(hard, d, results.DeviceFault, errors.New("it was alone on a device that had just computed right, and the device or the worker was lost each time"))
	case len(d.Msg.Data()) > t.w.maxBytes:
		return t.bury(hard, d, results.TooLarge, results.ErrExceedsBatch(len(d.Msg.Data()), t.w.maxBytes))
	}
	if !t.out.Put(ctx, d) {
		t.w.pool.Release(&d)
		return ctx.Err()
	}
	return nil
}

// bury stores a dead letter before anything behind it is taken. One that cannot be stored ends the tenure: nothing behind
// it may be acknowledged.
func (t *tenure) bury(hard context.Context, d inflight.Delivery, why results.Reason, cause error) error {
	defer t.w.pool.Release(&d)
	if err := t.w.results.PublishDeadLetter(hard, &d, why, cause); err != nil {
		return err
	}
	t.w.results.ReportDeadLetter(&d, why, cause)
	t.mu.Lock()
	alone := t.floor.Open() == 1
	t.floor.Settle(d.Sequence)
	t.dead[d.Sequence] = d.Msg.Receipt()
	t.w.pool.HoldReceipt()
	t.mu.Unlock()
	if !alone {
		return nil // it is acknowledged with what is before it
	}
	return t.acknowledge(hard, nil)
}
