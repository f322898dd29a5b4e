package partitioned

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
)

// A consumer that is reset to its floor counts deliveries from 1 again. Its annotations tell which inputs were delivered
// before, and so which deliveries are first ones.

// deliveredBefore returns the highest stream sequence that may have been delivered before a lease whose first message was the
// consumer's number-th delivery. doubtful reports that it may be higher: no worker has noted it yet.
func deliveredBefore(info *jetstream.ConsumerInfo, number uint64) (sequence uint64, doubtful bool) {
	sequence = delivered(info.Config.Metadata)
	if number != 1 {
		sequence = max(sequence, info.Delivered.Stream)
	}
	return sequence, info.Config.Metadata[topology.MarkDelivered] == ""
}

// firsts tells which deliveries of a lease are first ones, and keeps the annotations such that the next lease can tell that too. Only
// the reader uses it.
type firsts struct {
	host       leaseHost
	notes      *annotations
	before     uint64 // the highest sequence that may have been delivered before this lease
	doubtful   bool   // it may be higher: nobody has noted it
	lastNumber uint64 // of the last delivery that arrived
}

// begin enters the consumer's state when the lease begins with the consumer's number-th delivery.
func (f *firsts) begin(info *jetstream.ConsumerInfo, number uint64) {
	f.before, f.doubtful = deliveredBefore(info, number)
	f.before = max(f.before, f.notes.noted.Load())
	f.doubtful = f.doubtful || f.host.upgrading()
}

// delivered enters that an input up to that sequence was delivered before the lease's reset.
func (f *firsts) delivered(sequence uint64) {
	f.before = max(f.before, sequence)
	f.notes.noted.Store(max(f.notes.noted.Load(), sequence))
}

// judge finds out whether an input may have been delivered before this lease. Where nobody has noted that, those up to
// the highest that has a result may have been.
func (f *firsts) judge(ctx context.Context, d *inflight.Delivery) error {
	if f.doubtful {
		highest, err := f.host.highestStored(ctx, d.Stored)
		if err != nil {
			return err
		}
		f.before, f.doubtful = max(f.before, highest), false
	}
	if !d.First || d.Sequence <= f.before {
		d.First, d.Cleared = false, time.Time{}
	}
	return nil
}

// noteReset annotates how far this lease has taken inputs, if the delivery with that number shows that the consumer was reset
// under it: another worker did so before the server pinned this one. The server no longer knows that it delivered them.
func (f *firsts) noteReset(ctx context.Context, number uint64) error {
	last := f.lastNumber
	f.lastNumber = number
	if number > last {
		return nil
	}
	return f.notes.annotate(ctx, nil)
}
