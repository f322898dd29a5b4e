package partitioned

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// If deliveries are lost in transit, a lease reads their inputs from the stream. Otherwise it could never acknowledge anything
// after them.

// fillMost is the maximum number of inputs that are read from the stream at once, each in one round trip. For more inputs, a
// redelivery is faster.
const fillMost = 64

// fill takes the partition's inputs between the last one taken and sequence, and passes them on.
func (k *intake) fill(ctx, drainCtx context.Context, sequence uint64) error {
	from, number := k.acks.reached()
	missing, err := k.stored.missing(ctx, from, sequence, k.mostRead)
	if err != nil {
		return err
	}
	sequences := make([]uint64, len(missing))
	for i, raw := range missing {
		sequences[i] = raw.Sequence
	}
	k.acks.fill(sequences, sequence)
	if len(missing) > 0 {
		k.log.Info("read inputs from the stream that were delivered and never came", "inputs", len(missing), "from", sequences[0])
	}
	for i, raw := range missing {
		d := k.stored.delivery(raw, number+1+uint64(i))
		if err := k.passOn(ctx, drainCtx, &d, false); err != nil {
			return err
		}
	}
	return nil
}

// fillTail takes the inputs that the consumer has delivered last, according to its state, but that never arrived.
func (k *intake) fillTail(ctx, drainCtx context.Context, info *jetstream.ConsumerInfo) error {
	before, _ := k.acks.reached()
	if err := k.fill(ctx, drainCtx, info.Delivered.Stream+1); err != nil {
		return err
	}
	k.acks.skipTo(info.Delivered.Consumer)
	if after, _ := k.acks.reached(); after == before {
		return errGap // they were not new inputs
	}
	return nil
}
