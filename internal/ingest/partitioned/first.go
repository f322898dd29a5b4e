package partitioned

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
)

// A consumer that is reset to its floor counts deliveries from 1 again. Its annotations tell which inputs were delivered
// before, and so which deliveries are first ones.

// delivered returns the highest stream sequence that was delivered before, by the annotations; 0 without one.
func delivered(annotations map[string]string) uint64 {
	n, err := strconv.ParseUint(annotations[topology.MarkDelivered], 10, 64)
	if err != nil {
		return 0 // nothing, or nothing of ours
	}
	return n
}

// deliveredBefore returns the highest stream sequence that may have been delivered before a lease whose first message was the
// consumer's number-th delivery. doubtful reports that it may be higher: no worker has noted it yet.
func deliveredBefore(info *jetstream.ConsumerInfo, number uint64) (sequence uint64, doubtful bool) {
	sequence = delivered(info.Config.Metadata)
	if number != 1 {
		sequence = max(sequence, info.Delivered.Stream)
	}
	return sequence, info.Config.Metadata[topology.MarkDelivered] == ""
}

// noteDelivered annotates how far the consumer has delivered, before it is reset.
func (l *lease) noteDelivered(ctx context.Context, info *jetstream.ConsumerInfo) error {
	if delivered(info.Config.Metadata) >= info.Delivered.Stream {
		return nil
	}
	return l.annotateOn(ctx, info, nil)
}

// judgeFirst finds out whether an input may have been delivered before this lease. Where nobody has noted that, those up to
// the highest that has a result may have been.
func (l *lease) judgeFirst(ctx context.Context, d *inflight.Delivery) error {
	if l.doubtful {
		highest, err := l.host.highestStored(ctx, d.Stored)
		if err != nil {
			return err
		}
		l.before, l.doubtful = max(l.before, highest), false
	}
	if !d.First || d.Sequence <= l.before {
		d.First, d.Cleared = false, time.Time{}
	}
	return nil
}

// highestTaken returns the highest stream sequence that this lease has taken; 0 before it has begun.
func (l *lease) highestTaken() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.floor.Highest()
}

// noteReset annotates how far this lease has taken inputs, if the delivery with that number shows that the consumer was reset
// under it: another worker did so before the server pinned this one. The server no longer knows that it delivered them.
func (l *lease) noteReset(ctx context.Context, number uint64) error {
	last := l.lastNumber
	l.lastNumber = number
	if number > last {
		return nil
	}
	return l.annotate(ctx, nil)
}
