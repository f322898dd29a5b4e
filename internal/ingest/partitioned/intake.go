package partitioned

import (
	"context"
	"errors"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/partitioned/partition"
	"millrace/internal/ingest/results"
)

// intake passes a lease's inputs to the submitter in order: delivered inputs, and inputs that were read from the stream because
// their delivery was lost. Only the reader uses it.
type intake struct {
	*leaseState
	firsts *firsts
}

// enter takes a delivery, and passes it on if it is new. If inputs before it are missing, enter first reads them from the stream.
// It returns partition.Known if the input was taken before.
func (k *intake) enter(ctx, drainCtx context.Context, d *inflight.Delivery) (partition.Verdict, error) {
	verdict, behind := k.acks.take(d)
	if verdict == partition.Gap {
		if err := k.fill(ctx, drainCtx, d.Sequence); err != nil {
			return verdict, err
		}
		verdict, behind = k.acks.take(d)
	}
	switch verdict {
	case partition.New:
		return verdict, k.passOn(ctx, drainCtx, d, k.caution.condemns(d.Sequence, behind))
	case partition.Known:
		return verdict, nil
	}
	return verdict, errGap
}

// passOn gives a new delivery to the submitter. A delivery that is condemned or too large becomes a dead letter instead.
func (k *intake) passOn(ctx, drainCtx context.Context, d *inflight.Delivery, condemned bool) error {
	if !k.host.hold(ctx, d) {
		return ctx.Err()
	}
	if err := k.firsts.judge(drainCtx, d); err != nil {
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
		return k.publishDeadLetter(drainCtx, *d, results.DeviceFault, errors.New("it was alone on a device that had just computed right, and the device or the worker was lost each time"))
	case len(d.Msg.Data()) > k.maxBytes && !k.host.splits():
		return k.publishDeadLetter(drainCtx, *d, results.TooLarge, results.ErrExceedsBatch(len(d.Msg.Data()), k.maxBytes))
	}
	if !k.out.Put(ctx, *d) {
		k.host.release(d)
		return ctx.Err()
	}
	return nil
}

// publishDeadLetter stores a dead letter before any later input is taken. If that fails the lease ends, because no later input
// may be acknowledged.
func (k *intake) publishDeadLetter(drainCtx context.Context, d inflight.Delivery, why results.Reason, cause error) error {
	defer k.host.release(&d)
	if err := k.host.publishDeadLetter(drainCtx, &d, why, cause); err != nil {
		return err
	}
	if !k.acks.settledAlone(&d) {
		return nil // it is acknowledged together with the inputs before it
	}
	return k.acks.acknowledge(drainCtx, nil)
}
