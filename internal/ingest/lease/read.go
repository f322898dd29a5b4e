package lease

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
)

// pullFor is the lifetime of a pull request, and the interval at which keepTurn contacts the server.
const pullFor = time.Second

// reader receives a lease's deliveries in order and without gaps, and passes them to the submitter.
type reader struct {
	*leaseState
	intake  *intake
	checker *checker

	pull   leasePull
	turn   uint64 // turn in which the lease began; see pull.Message.Turn
	number uint64 // consumer sequence of the last delivery that arrived
}

func newReader(l *leaseState) *reader {
	r := &reader{leaseState: l}
	r.intake = &intake{leaseState: l, pinned: r.pinID}
	r.checker = &checker{leaseState: l, intake: r.intake}
	return r
}

// run receives deliveries and passes them on, until ctx is done or the lease fails. Then it closes out.
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
	var d inflight.Delivery // reused for all deliveries, because it escapes to the heap
	for {
		if err := r.next(ctx, drainCtx, &d); err != nil {
			return err
		}
		if !r.begun {
			if err := r.begin(ctx, drainCtx, &d); err != nil {
				return err
			}
		}
		if err := r.take(ctx, drainCtx, &d); err != nil {
			return err
		}
	}
}

// keepTurn renews this worker's pin every pullFor, because the reader makes no requests while the device is busy. It
// doesn't renew the pin while the server doesn't answer. The worker can't finish batches during that time, so another
// worker should own the partition.
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

// next clears d, waits for a delivery, and stores it in d. While none arrives, next checks the consumer at intervals.
func (r *reader) next(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	*d = inflight.Delivery{}
	for {
		msg, err := r.pull.next(ctx)
		switch {
		case err == nil:
			if *d, err = inflight.NewDelivery(msg, time.Now()); err != nil {
				return err
			}
			d.Subject = inflight.PartitionSubject(msg.Subject())
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, pull.ErrIdle):
			if err := r.checker.check(ctx, drainCtx); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// begin starts the lease after d, the first delivery under this worker's pin. It reads the consumer's state and
// annotates that the lease has begun. If the consumer made deliveries before d, take finds a gap and reads their inputs
// from the stream.
//
// The end of ctx interrupts begin only before the annotation. A lease that has begun only partly can't be given up, so
// its deliveries would wait for AckWait.
func (r *reader) begin(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	r.turn = d.Turn
	info, err := r.server.Info(drainCtx)
	if err != nil {
		return err
	}
	left := info.Config.Metadata
	// After a server crash or an administrator's reset, the consumer's state may lack deliveries. The annotation still
	// covers them.
	r.intake.before = delivered(left)
	of := results.Partition{
		Floor: info.AckFloor.Stream, Delivered: max(info.Delivered.Stream, delivered(left)), Loose: left[annotationLoose] != "",
		IsStored: r.isStored,
	}
	if r.commits, err = r.openCommits(ctx, of); err != nil {
		return err
	}
	if r.commits != nil {
		r.store = r.commits
	}
	r.describeCommits(ctx, info, &of)
	if err := r.caution.takeOver(drainCtx, info, r.pipe.BatchPayloads(), r.commits == nil); err != nil {
		return err
	}
	for _, f := range inflight.ParseFaults(info.Config.Metadata[inflight.FaultNote]) {
		r.o.Observer.OperatorFault(f)
	}
	r.owner.began()
	r.begun = true
	r.log.Debug("has the partition", "floor", info.AckFloor.Stream, "pin", r.pinID(), "first", d.ConsumerSequence)
	return nil
}

// describeCommits logs the position of the last commit marker if it differs from the acknowledgement floor.
func (r *reader) describeCommits(ctx context.Context, info *jetstream.ConsumerInfo, of *results.Partition) {
	if r.commits == nil {
		return
	}
	switch at, ok := r.commits.Found(); {
	case !ok && info.AckFloor.Consumer > 0:
		r.log.Warn("the result stream has no commit marker of this partition: exactly once is new here, or the result stream was purged or recreated. "+
			"The partition continues after the last acknowledged input; results that were purged are not made again", "acknowledged", info.AckFloor.Stream)
	case of.IsBeyond(ctx, r.commits):
		r.log.Warn("more inputs are acknowledged than the last commit marker covers: a worker without commit markers had the partition, or the "+
			"result stream has lost its last messages", "acknowledged", info.AckFloor.Stream, "committed", at.Sequence)
	case ok && at.Sequence > info.AckFloor.Stream:
		r.log.Info("inputs that have a result are acknowledged without being computed", "acknowledged", info.AckFloor.Stream, "committed", at.Sequence)
	}
}

// isStored reports whether the stream still has the partition's input with the given sequence. A delete marker isn't an
// input.
func (r *reader) isStored(ctx context.Context, sequence uint64) bool {
	for raw, err := range r.stored.between(ctx, sequence-1, sequence+1) {
		return err == nil && !pull.IsDeleteMarker(raw.Header, raw.Data)
	}
	return false
}

// take records a delivery, and passes it on if it must be processed.
func (r *reader) take(ctx, drainCtx context.Context, d *inflight.Delivery) error {
	r.owner.handing(true)
	defer r.owner.handing(false)
	switch {
	case d.Turn != r.turn:
		return errPinLost
	case d.ConsumerSequence <= r.number:
		return errReset
	}
	r.number = d.ConsumerSequence
	r.owner.pending(d.Pending)
	verdict, err := r.intake.enter(ctx, drainCtx, d)
	if err != nil || verdict != knownInput {
		return err
	}
	r.o.Observer.Redelivered()
	r.checker.acknowledgeAgain(drainCtx, d.Sequence)
	return nil
}

// pinID returns this worker's pin, or an empty string if the worker isn't pinID.
func (r *reader) pinID() string {
	if r.pull == nil {
		return ""
	}
	return r.pull.pin()
}

// checker compares the consumer's state with the state of the lease. It runs when no delivery arrives, or when an
// acknowledged input is redelivered. Only the reader uses it.
type checker struct {
	*leaseState
	intake *intake

	resentAt time.Time // time when acknowledgeAgain last repeated an acknowledgement
}

// check compares the consumer's state with the lease, and repairs a difference if possible.
func (c *checker) check(ctx, drainCtx context.Context) error {
	info, err := c.server.Info(ctx)
	if err != nil {
		return err
	}
	c.owner.pending(info.NumPending)
	if err := c.keepMarkers(drainCtx); err != nil {
		return err
	}
	_, taken := c.acks.reached()
	switch {
	case !c.begun && pinOf(info) == "" && isOverAcknowledged(info):
		return c.repair(ctx, info)
	case !c.begun && info.NumAckPending > 0 && pinOf(info) == "":
		// The server has dropped the pin, so the partition's owner is gone.
		c.log.Info("taking over a partition whose owner is gone", "unacknowledged", info.NumAckPending)
		return c.redeliver(ctx, info)
	case !c.begun:
		return nil
	case pinnedTo(info, c.intake.pinned()) && isOverAcknowledged(info):
		return c.repair(ctx, info)
	case info.Delivered.Consumer == taken:
		c.acknowledgeAll(drainCtx, info)
		return nil
	}
	return c.intake.fill(ctx, drainCtx, info, taken) // missing deliveries would have arrived by now
}

// keepMarkers keeps the stream from removing the last commit marker because of its age.
func (c *checker) keepMarkers(ctx context.Context) error {
	if c.commits == nil {
		return nil // before the lease has begun, or without markers
	}
	return c.commits.Keep(ctx)
}

// acknowledgeAll repeats the last acknowledgement if it covers all deliveries and the server hasn't processed it. An
// earlier owner may have acknowledged a redelivered input with a higher consumer sequence. The server then ignores
// acknowledgements with lower ones, even if they cover more inputs. The repeated acknowledgement therefore names the
// consumer's last delivery.
func (c *checker) acknowledgeAll(drainCtx context.Context, info *jetstream.ConsumerInfo) {
	msg, sequence, open := c.acks.latest()
	if msg == nil || open > 0 || info.AckFloor.Stream >= sequence {
		return
	}
	c.acks.send(drainCtx, c.server.receipt(sequence, info.Delivered.Consumer), sequence)
}

// acknowledgeAgain repeats the last acknowledgement if it covered the redelivered input with the given sequence. The
// last acknowledgement may have been lost or ignored, and the next one may be late. For the consumer sequence, see
// acknowledgeAll.
func (c *checker) acknowledgeAgain(drainCtx context.Context, sequence uint64) {
	msg, covered, open := c.acks.latest()
	if msg == nil || sequence > covered || time.Since(c.resentAt) < resendAfter {
		return
	}
	c.resentAt = time.Now()
	if _, taken := c.acks.reached(); open == 0 {
		msg = c.server.receipt(covered, taken)
	}
	c.acks.send(drainCtx, msg, covered)
}

// resendAfter is the minimum time between two resent acknowledgements. The server redelivers all inputs of a lost
// acknowledgement together, so one resend is enough.
const resendAfter = 100 * time.Millisecond
