package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/record"
)

// intake passes a lease's inputs to the submitter, in order. It reads inputs from the stream if they were delivered to
// an earlier owner or their delivery was lost. Only the reader uses it.
type intake struct {
	*leaseState
	before uint64        // highest stream sequence that may have been delivered before this lease
	pinned func() string // see reader.pinned
}

// enter records a delivery, and passes it on if its input is new. If earlier deliveries are missing, enter first reads
// their inputs from the stream.
func (k *intake) enter(ctx, drainCtx context.Context, d *inflight.Delivery) (verdict, error) {
	verdict, behind := k.acks.take(d)
	if verdict == gap {
		info, err := k.server.Info(ctx)
		if err != nil {
			return verdict, err
		}
		if err := k.fill(ctx, drainCtx, info, d.ConsumerSequence); err != nil {
			return verdict, err
		}
		verdict, behind = k.acks.take(d)
	}
	switch verdict {
	case newInput:
		return verdict, k.passOn(ctx, drainCtx, d, k.caution.condemns(d.Sequence, behind))
	case gap:
		return verdict, errUnread
	}
	return verdict, nil
}

// errUnread ends a lease that received an input but didn't find it in the stream. Either the input has been deleted, or
// the stream can't be read and earlier inputs may be missing.
var errUnread = errors.New("the stream does not have an input that was delivered")

// fill reads the inputs from the stream that the consumer has delivered and this lease doesn't have, and passes them
// on. info is the consumer's state. arrived is the consumer sequence of the last delivery that arrived. If this worker
// is no longer pinned, the inputs may belong to the next owner, and fill returns errPinLost.
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

// passOn passes a new input to the submitter. A condemned or oversized input becomes a dead letter instead, and a
// settled input is acknowledged. A condemned input with a stored result is passed on for the state, but without its records.
func (k *intake) passOn(ctx, drainCtx context.Context, d *inflight.Delivery, condemned bool) error {
	if !k.o.Pool.Hold(ctx, d) {
		return ctx.Err()
	}
	if !d.First || d.Sequence <= k.before {
		d.First, d.Cleared = false, time.Time{}
	}
	if settled, err := k.isSettled(drainCtx, d); err != nil || settled {
		k.o.Pool.Release(d)
		return err
	}
	k.o.Pool.Unpack(d)
	if f := d.Frame; f != nil && k.caution.suspects(d) {
		if f.Open(); f.Framed() && f.Records() > 0 {
			condemned = !k.caution.cut(f)
		}
	}
	if condemned && d.Done {
		excludeRecords(d.Frame)
		condemned = false
	}
	switch {
	case condemned:
		return k.publishDeadLetter(ctx, drainCtx, *d, results.DeviceFault, k.caution.cause())
	case k.isTooLarge(len(d.Msg.Data())):
		return k.publishDeadLetter(ctx, drainCtx, *d, results.TooLarge, results.ErrExceedsBatch(len(d.Msg.Data()), k.o.Pool.Split.MaxRecord))
	}
	if !k.out.Put(ctx, *d) {
		k.o.Pool.Release(d)
		return ctx.Err()
	}
	return nil
}

// excludeRecords keeps all records of a frame from the device. For the state, package results computes them otherwise.
func excludeRecords(f *inflight.Frame) {
	f.Open()
	for i := range f.Records() {
		if f.Table.Status(i) == record.OK {
			f.Exclude(i, record.DeviceFault)
		}
	}
}

// isSettled reports whether nothing must be computed for an input, because an earlier lease has settled it or because the
// input is a delete marker. It acknowledges such an input.
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
		k.store.AlreadyStored(d)
	case !pull.IsDeleteMarker(d.Msg.Headers(), d.Msg.Data()):
		return false, nil
	}
	if k.acks.settledAlone(d) {
		return true, k.acks.acknowledge(drainCtx, nil)
	}
	return true, nil
}

// publishDeadLetter stores a dead letter and acknowledges its input. With commit markers, it first waits until all
// earlier inputs are acknowledged. If it returns an error, the lease ends, because no later input may be acknowledged.
func (k *intake) publishDeadLetter(ctx, drainCtx context.Context, d inflight.Delivery, why results.Reason, cause error) error {
	defer k.o.Pool.Release(&d)
	if k.commits != nil && !k.acks.awaitFirst(ctx) {
		return ctx.Err()
	}
	if err := k.store.PublishDeadLetter(drainCtx, &d, why, cause); err != nil {
		return err
	}
	k.store.ReportDeadLetter(&d, why, cause)
	if !k.acks.settledAlone(&d) {
		return nil // d is acknowledged together with the inputs before it
	}
	return k.acks.acknowledge(drainCtx, nil)
}

// errReset ends a lease whose consumer has restarted its consumer sequences. Acknowledgements of the lease would name
// wrong deliveries.
var errReset = errors.New("the consumer was reset, or restored from an older state")

// isOverAcknowledged reports whether the acknowledged consumer sequence is higher than the delivered one, or equal
// although inputs are unacknowledged. This happens if an administrator resets the consumer while an acknowledgement is
// in transit, or if a server crashed and lost deliveries. The server then ignores all other acknowledgements and
// redelivery requests, until the consumer has made more deliveries.
func isOverAcknowledged(info *jetstream.ConsumerInfo) bool {
	acknowledged, delivered := info.AckFloor.Consumer, info.Delivered.Consumer
	return acknowledged > delivered || acknowledged == delivered && info.NumAckPending > 0
}

// repair resets an over-acknowledged consumer to its floor, because nothing else makes the server accept acknowledgements. It always
// returns an error, which ends the lease.
func (l *leaseState) repair(ctx context.Context, info *jetstream.ConsumerInfo) error {
	l.log.Warn("the server has an acknowledgement with a number as high as the consumer's last delivery; resetting the consumer to its floor",
		"floor", info.AckFloor.Stream, "acknowledged", info.AckFloor.Consumer, "delivered", info.Delivered.Consumer)
	if err := l.server.reset(ctx, info.AckFloor.Stream+1); err != nil {
		return fmt.Errorf("reset the consumer to sequence %d, which the server needs to accept acknowledgements again (allow "+
			"the API request CONSUMER.RESET, or stop the workers and reset it): %w", info.AckFloor.Stream+1, err)
	}
	return errReset
}
