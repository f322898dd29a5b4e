package partitioned

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
)

// A consumer that is reset to its floor counts deliveries from 1 again. Its annotations record which inputs were delivered
// before, and so which deliveries are first ones.

// deliveredBefore returns the highest stream sequence that may have been delivered before a lease. number is the consumer
// sequence of the lease's first message. doubtful reports that the true value may be higher, because no worker has annotated it
// yet.
func deliveredBefore(info *jetstream.ConsumerInfo, number uint64) (sequence uint64, doubtful bool) {
	sequence = delivered(info.Config.Metadata)
	if number != 1 {
		sequence = max(sequence, info.Delivered.Stream)
	}
	return sequence, info.Config.Metadata[topology.MarkDelivered] == ""
}

// firsts determines which deliveries of a lease are first ones, and updates the annotations so that the next lease can do the
// same. Only the reader uses it.
type firsts struct {
	host       leaseHost
	notes      *annotations
	before     uint64 // highest sequence that may have been delivered before this lease
	doubtful   bool   // whether before may be too low, because no worker has annotated it
	lastNumber uint64 // consumer sequence of the last delivery that arrived
}

// begin records the consumer's state when the lease begins with the consumer's number-th delivery.
func (f *firsts) begin(info *jetstream.ConsumerInfo, number uint64) {
	f.before, f.doubtful = deliveredBefore(info, number)
	f.before = max(f.before, f.notes.noted.Load())
	f.doubtful = f.doubtful || f.host.upgrading()
}

// delivered records that an input up to that sequence was delivered before the lease's reset.
func (f *firsts) delivered(sequence uint64) {
	f.before = max(f.before, sequence)
	f.notes.noted.Store(max(f.notes.noted.Load(), sequence))
}

// judge determines whether an input may have been delivered before this lease. If no worker has annotated that, every input up to
// the highest one with a result may have been.
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

// noteReset annotates how far this lease has taken inputs, if number shows that the consumer was reset during the lease. Another
// worker reset it before the server pinned this one, so the server no longer knows that it delivered those inputs.
func (f *firsts) noteReset(ctx context.Context, number uint64) error {
	last := f.lastNumber
	f.lastNumber = number
	if number > last {
		return nil
	}
	return f.notes.annotate(ctx, nil)
}
