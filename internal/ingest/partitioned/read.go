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

// pullFor is the duration of a pull request. It is also the interval at which a worker that is behind contacts the server.
const pullFor = time.Second

// reader takes a lease's deliveries in order and without a gap, starting with the first one that the server sends this worker. It
// passes them to the submitter.
type reader struct {
	*leaseState
	batches leaseBatches
	intake  *intake
	firsts  *firsts
	checker *checker

	pull leasePull
	turn uint64 // number of the turn in which the lease began; see pull.Message
}

func newReader(l *leaseState, batches leaseBatches) *reader {
	f := &firsts{host: l.host, notes: l.notes}
	k := &intake{leaseState: l, firsts: f}
	return &reader{leaseState: l, batches: batches, firsts: f, intake: k, checker: &checker{leaseState: l, intake: k}}
}

// run takes deliveries and passes them on until ctx is done or the lease fails. It closes out.
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
	var d inflight.Delivery // reused for all deliveries, because it escapes to the heap
	for {
		if err := r.next(ctx, drainCtx, &d); err != nil {
			return err
		}
		if !r.begun {
			// A stop doesn't interrupt begin. A lease that has only half begun could not be given up, and its deliveries would
			// wait for AckWait.
			if err := r.begin(drainCtx, &d); err != nil {
				return err
			}
			stale = staleDeliveries{expected: d.ConsumerSequence != 1, since: time.Now()}
		}
		if stale.includes(d.ConsumerSequence) {
			r.firsts.delivered(d.Sequence)
			if time.Since(stale.since) > topology.PinnedFor {
				return errGap // the first deliveries after the reset were lost
			}
			continue
		}
		if err := r.take(ctx, drainCtx, &d); err != nil {
			return err
		}
	}
}

// staleDeliveries identifies deliveries that the server sent before it reset the consumer. Their consumer sequences rise; those
// after the reset start from 1. An acknowledgement of a stale delivery would name a consumer sequence that the server has yet to
// assign.
type staleDeliveries struct {
	expected bool // whether every delivery so far was stale
	last     uint64
	since    time.Time // time of the reset
}

// includes reports whether the delivery with that consumer sequence is stale.
func (s *staleDeliveries) includes(number uint64) bool {
	s.expected = s.expected && number > s.last
	s.last = number
	return s.expected
}

// keepTurn keeps the partition pinned to this worker while the device is behind and nothing is pulled. It stops when the server
// doesn't answer, because the worker's batches can't be finished then, and another worker should have the partition.
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

// next waits for a delivery. While none arrives it checks the consumer at intervals, and d holds no message.
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

// begin checks the consumer's state when the server has pinned this worker, with d as the first message. If d is not the
// consumer's first delivery ever, another worker may have earlier ones. Then begin resets the consumer, which delivers again from
// its acknowledgement floor, with consumer sequences from 1.
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

// take records a delivery, and passes it on if it must be processed.
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

// pinned returns the pin of this worker's turn, or empty if it has no turn.
func (r *reader) pinned() string {
	if r.pull == nil {
		return ""
	}
	return r.pull.pin()
}
