package partitioned

import (
	"context"
	"sync/atomic"
	"time"

	"millrace/internal/ingest/partitioned/members"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/stall"
	"millrace/internal/ingest/topology"
)

// watch queries the server about the consumers of all partitions, including partitions of other workers.
type watch struct {
	o       *Options
	members *members.Members
	backlog *backlog
	custody *custody
	handing []atomic.Bool // by partition: whether its lease is busy with a delivery and requests none; see stall.Detector.Saw
}

func newWatch(o *Options, m *members.Members) *watch {
	n := o.Topology.Partitions
	return &watch{o: o, members: m, backlog: newBacklog(o.Observer, n), custody: newCustody(m, n, o.Log), handing: make([]atomic.Bool, n)}
}

// run queries the partitions in turn until ctx is done. It queries up to a hundred partitions within stall.Interval.
// Deliveries also report a partition's backlog, but only to its owner.
func (w *watch) run(ctx context.Context) {
	partitions := w.o.Topology.Partitions
	pause := max(stall.Interval/time.Duration(partitions), minPause)
	for p := 0; ; p = (p + 1) % partitions {
		w.check(ctx, p)
		if !retry.Sleep(ctx, pause) {
			return
		}
	}
}

// check queries the consumer of partition p, and passes its state to the backlog, the stall detector and custody.
func (w *watch) check(ctx context.Context, p int) {
	asked, done := context.WithTimeout(ctx, stall.Interval)
	defer done()
	c, err := w.o.JS.Consumer(asked, w.o.Topology.Stream, topology.PartitionConsumer(w.o.Topology.Consumer, p))
	if err != nil {
		w.o.Stalls.MarkUnknown(p, time.Now())
		return
	}
	info := c.CachedInfo()
	w.backlog.update(p, info.NumPending)
	w.backlog.unsettled(p, info.NumAckPending)
	owned, _ := w.members.Standing(p)
	// If another worker is pinned, that worker reports a stall.
	w.o.Stalls.Saw(p, info, w.handing[p].Load() || !owned && pinOf(info) != "", time.Now())
	w.custody.saw(p, info, time.Now())
}
