package ingest

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
)

// A consumer that starts again from its floor counts deliveries from 1. Which inputs nobody has had before is known by what its metadata
// says of what was delivered before it started again.

// delivered is the highest stream sequence that was delivered before, as the marks say; 0 where they say nothing.
func delivered(marks map[string]string) uint64 {
	n, err := strconv.ParseUint(marks[topology.MarkDelivered], 10, 64)
	if err != nil {
		return 0 // nothing, or nothing of ours
	}
	return n
}

// deliveredBefore is the highest stream sequence that may have been delivered before a tenure whose first sign was the consumer's
// number-th delivery. doubtful says that it may be higher: no worker has noted it yet.
func deliveredBefore(info *jetstream.ConsumerInfo, number uint64) (sequence uint64, doubtful bool) {
	sequence = delivered(info.Config.Metadata)
	if number != 1 {
		sequence = max(sequence, info.Delivered.Stream)
	}
	return sequence, info.Config.Metadata[topology.MarkDelivered] == ""
}

// noteDelivered marks how far the consumer has delivered, before it starts again.
func (t *tenure) noteDelivered(ctx context.Context, info *jetstream.ConsumerInfo) error {
	if delivered(info.Config.Metadata) >= info.Delivered.Stream {
		return nil
	}
	return t.markOn(ctx, info, nil)
}

// judgeFirst finds out whether an input may have been delivered before this tenure. Where nobody has noted that, those up to the highest
// that has a result may have been.
func (t *tenure) judgeFirst(ctx context.Context, d *inflight.Delivery) error {
	if t.doubtful {
		highest, err := t.w.results.HighestInput(ctx, d.Stored)
		if err != nil {
			return err
		}
		t.before, t.doubtful = max(t.before, highest), false
	}
	if !d.First || d.Sequence <= t.before {
		d.First, d.Cleared = false, time.Time{}
	}
	return nil
}
