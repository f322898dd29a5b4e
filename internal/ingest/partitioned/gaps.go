package partitioned

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// A lease reads deliveries that were lost on the way from the stream. Without them it could never acknowledge anything
// behind them.

// fillMost is how many inputs are read from the stream at once, each in one round trip. It is faster to have more of them
// delivered again.
const fillMost = 64

// fill takes what the partition has between the last input taken and sequence, and passes it on.
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

// fillTail takes what the consumer delivered last, by its own account, and never arrived.
func (k *intake) fillTail(ctx, drainCtx context.Context, info *jetstream.ConsumerInfo) error {
	before, _ := k.acks.reached()
	if err := k.fill(ctx, drainCtx, info.Delivered.Stream+1); err != nil {
		return err
	}
	k.acks.skipTo(info.Delivered.Consumer)
	if after, _ := k.acks.reached(); after == before {
		return errGap // they were no new ones
	}
	return nil
}
