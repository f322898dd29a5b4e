package partitioned

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
)

// firsts determines which deliveries of a lease are first ones. The server's delivery counts are not enough: a server that crashed,
// or a consumer that an administrator reset, has forgotten some. So the annotations record how far the consumer has delivered. Only
// the reader uses it.
type firsts struct {
	host     leaseHost
	before   uint64 // highest stream sequence that may have been delivered before this lease
	doubtful bool   // whether before may be too low, because no worker has annotated it
}

// begin records the consumer's state when the lease begins.
func (f *firsts) begin(info *jetstream.ConsumerInfo) {
	f.before = delivered(info.Config.Metadata)
	f.doubtful = info.Config.Metadata[topology.MarkDelivered] == "" || f.host.upgrading()
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
