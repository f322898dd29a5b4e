package partitioned

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/partitioned/partition"
	"millrace/internal/ingest/results"
)

// intake passes a lease's inputs to the submitter in order: inputs that are delivered, and inputs that it reads from the stream
// because they were delivered to an earlier owner or their delivery was lost. Only the reader uses it.
type intake struct {
	*leaseState
	before uint64        // highest stream sequence that may have been delivered before this lease
	pinned func() string // returns the pin of this worker's turn
}

// enter takes a delivery, and passes it on if it is new. If deliveries before it are missing, enter first reads from the stream what
// the consumer has delivered.
func (k *intake) enter(ctx, drainCtx context.Context, d *inflight.Delivery) (partition.Verdict, error) {
	verdict, behind := k.acks.take(d)
	if verdict == partition.Gap {
		info, err := k.server.info(ctx)
		if err != nil {
			return verdict, err
		}
		if err := k.fill(ctx, drainCtx, info, d.ConsumerSequence); err != nil {
			return verdict, err
		}
		verdict, behind = k.acks.take(d)
	}
	switch verdict {
	case partition.New:
		return verdict, k.passOn(ctx, drainCtx, d, k.caution.condemns(d.Sequence, behind))
	case partition.Gap:
		return verdict, errUnread
	}
	return verdict, nil
}

// errUnread ends a lease that has received an input which it didn't find in the stream. The input may have been deleted since.
// Otherwise the stream can't be read, and inputs before it may be missing.
var errUnread = errors.New("the stream does not have an input that was delivered")

// fill reads the inputs from the stream that the consumer has delivered, according to info, and that this lease has not taken. It
// passes them on. arrived is the consumer sequence of the last delivery that has arrived. If the worker is no longer pinned, they may
// belong to the next owner, and fill fails with errPinLost.
func (k *intake) fill(ctx, drainCtx context.Context, info *jetstream.ConsumerInfo, arrived uint64) error {
	last := info.Delivered
	switch {
	case !pinnedTo(info, k.pinned()):
		return errPinLost
	case isOverAcknowledged(info):
		return k.repair(ctx, info)
	case last.Consumer < arrived:
		return errReset
	}
	from, number := k.acks.reached()
	begins, read := number == 0, 0
	for raw, err := range k.stored.between(ctx, from, last.Stream+1) {
		if err != nil {
			return err
		}
		number, behind := k.acks.takeStored(raw.Sequence, last.Consumer)
		d := k.stored.delivery(raw, number)
		if err := k.passOn(ctx, drainCtx, &d, k.caution.condemns(d.Sequence, behind)); err != nil {
			return err
		}
		read++
	}
	k.acks.caughtUp(last)
	if read > 0 && !begins {
		k.log.Info("read inputs from the stream that were delivered and never came", "inputs", read, "after", from)
	}
	return nil
}

// passOn gives a new input to the submitter. An input that is condemned or too large becomes a dead letter instead.
func (k *intake) passOn(ctx, drainCtx context.Context, d *inflight.Delivery, condemned bool) error {
	if !k.host.hold(ctx, d) {
		return ctx.Err()
	}
	if !d.First || d.Sequence <= k.before {
		d.First, d.Cleared = false, time.Time{}
	}
	if settled, err := k.isSettled(drainCtx, d); err != nil || settled {
		k.host.release(d)
		return err
	}
	k.host.unpack(d)
	if f := d.Frame; f != nil && k.caution.suspects(d) {
		if f.Open(); f.Framed() && f.Records() > 0 {
			condemned = !k.caution.cut(f)
		}
	}
	switch {
	case condemned:
		return k.publishDeadLetter(ctx, drainCtx, *d, results.DeviceFault, k.caution.cause())
	case len(d.Msg.Data()) > k.maxBytes && !k.host.splits():
		return k.publishDeadLetter(ctx, drainCtx, *d, results.TooLarge, results.ErrExceedsBatch(len(d.Msg.Data()), k.maxBytes))
	}
	if !k.out.Put(ctx, *d) {
		k.host.release(d)
		return ctx.Err()
	}
	return nil
}

// isSettled reports whether an input needs no result: an earlier lease has stored its result or its dead letter, or it is a delete marker.
// It is then acknowledged without being computed.
func (k *intake) isSettled(drainCtx context.Context, d *inflight.Delivery) (bool, error) {
	stored := false
	if k.commits != nil {
		var err error
		if stored, err = k.commits.Settled(drainCtx, d); err != nil {
			return false, err
		}
	}
	switch {
	case stored:
		k.host.alreadyStored(d)
	case !jsapi.IsDeleteMarker(d.Msg.Headers(), d.Msg.Data()):
		return false, nil
	}
	if k.acks.settledAlone(d) {
		return true, k.acks.acknowledge(drainCtx, nil)
	}
	return true, nil
}

// publishDeadLetter stores a dead letter before any later input is taken, and with exactly once after all earlier ones are settled. If that
// fails the lease ends, because no later input may be acknowledged.
func (k *intake) publishDeadLetter(ctx, drainCtx context.Context, d inflight.Delivery, why results.Reason, cause error) error {
	defer k.host.release(&d)
	if k.commits != nil && !k.acks.awaitFirst(ctx) {
		return ctx.Err()
	}
	if err := k.host.publishDeadLetter(drainCtx, &d, why, cause); err != nil {
		return err
	}
	if !k.acks.settledAlone(&d) {
		return nil // it is acknowledged together with the inputs before it
	}
	return k.acks.acknowledge(drainCtx, nil)
}
