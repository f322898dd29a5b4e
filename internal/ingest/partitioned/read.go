package partitioned

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/partitioned/partition"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/topology"
)

// pullFor is how long a pull request lasts, and how often the server hears of a worker that is behind.
const pullFor = time.Second

// reader takes a lease's deliveries from the first one that the server sends this worker, in order and without a gap, and passes
// them on to the submitter.
type reader struct {
	*leaseState
	batches leaseBatches
	intake  *intake
	firsts  *firsts
	checker *checker

	pull leasePull
	turn uint64 // this worker's name for the turn in which the lease began; see pull.Message
}

func newReader(l *leaseState, batches leaseBatches) *reader {
	f := &firsts{host: l.host, notes: l.notes}
	k := &intake{leaseState: l, firsts: f}
	return &reader{leaseState: l, batches: batches, firsts: f, intake: k, checker: &checker{leaseState: l, intake: k}}
}

// run takes deliveries and passes them on, until ctx is done or the lease cannot go on. It closes out.
func (r *reader) run(ctx, drainCtx context.Context) error {
	defer r.out.Close()
	var err error
	if r.pull, err = r.server.pull(); err != nil {
		return err
	}
	defer func() { r.pull.leave(drainCtx, r.turn) }()
	keeping, over := context.WithCancel(ctx)
	defer over()
	go r.keepTurn(keeping)
	var stale staleDeliveries
	var d inflight.Delivery // one for all: it escapes to the host
	for {
		if err := r.next(ctx, drainCtx, &d); err != nil {
			return err
		}
		if !r.begun {
			// A stop doesn't interrupt this: half begun it could not be given up, and what it had would wait for AckWait.
			if err := r.begin(drainCtx, &d); err != nil {
				return err
			}
			stale = staleDeliveries{expected: d.ConsumerSequence != 1, since: time.Now()}
		}
		if stale.includes(d.ConsumerSequence) {
			r.firsts.delivered(d.Sequence)
			if time.Since(stale.since) > topology.PinnedFor {
				return errGap // the first deliveries after the reset got lost
			}
			continue
		}
		if err := r.take(ctx, drainCtx, &d); err != nil {
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
func (r *reader) keepTurn(ctx context.Context) {
	for retry.Sleep(ctx, pullFor) {
		answered, cancel := context.WithTimeout(ctx, pullFor)
		err := r.server.flush(answered)
		cancel()
		if err == nil {
			err = r.pull.keep()
		}
		if err != nil {
			r.log.Debug("could not keep the partition", "error", err)
		}
	}
}

// next waits for a delivery. While none arrives it checks the consumer now and then, and d holds no message.
func (r *reader) next(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	*d = inflight.Delivery{}
	for {
		msg, err := r.pull.next(ctx)
		switch {
		case err == nil:
			if *d, err = inflight.NewDelivery(msg, time.Now()); err != nil {
				return err
			}
			d.Subject = topology.PartitionSubject(msg.Subject())
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, pull.ErrIdle):
			if err := r.checker.check(ctx, drainCtx, r.pinned()); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// begin looks at the consumer when the server has chosen this worker, with d as the first message. If that is not the first
// delivery that the consumer ever made, another worker may have earlier ones. Then the consumer is reset: it delivers again
// from its acknowledgement floor, with numbers from 1.
func (r *reader) begin(ctx context.Context, d *inflight.Delivery) error {
	r.turn = d.Turn
	info, err := r.server.info(ctx)
	if err != nil {
		return err
	}
	r.firsts.begin(info, d.ConsumerSequence)
	if err := r.caution.takeOver(ctx, info, r.batches.largest()); err != nil {
		return err
	}
	r.host.began()
	r.begun = true
	r.log.Debug("has the partition", "floor", info.AckFloor.Stream, "pin", r.pinned(), "first", d.ConsumerSequence)
	if d.ConsumerSequence == 1 {
		return nil
	}
	if err := r.server.reset(ctx, info); err != nil {
		return fmt.Errorf("have the consumer start again from its floor (nats-server 2.14 or later): %w", err)
	}
	return nil
}

// take enters a delivery, and passes it on if it has to be processed.
func (r *reader) take(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	r.host.handing(true)
	defer r.host.handing(false)
	if d.Turn != r.turn {
		return errPinLost
	}
	r.host.pending(d.Pending)
	if err := r.firsts.noteReset(ctx, d.ConsumerSequence); err != nil {
		return err
	}
	verdict, err := r.intake.enter(ctx, drainCtx, d)
	if err != nil || verdict != partition.Known {
		return err
	}
	r.host.redelivered()
	return r.checker.acknowledgeAgain(ctx, drainCtx, d.Sequence)
}

// pinned returns the pin of this worker's turn; empty while it has none.
func (r *reader) pinned() string {
	if r.pull == nil {
		return ""
	}
	return r.pull.pin()
}
