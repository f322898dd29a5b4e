package ingest

import (
	"context"
	"sync"
	"time"

	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/stall"
	"millrace/internal/ingest/topology"
)

// backlog is what the consumers of all partitions have yet to deliver together. Every worker tells the whole of it, whichever
// partitions are its own, as with shared delivery.
type backlog struct {
	observer Observer

	mu      sync.Mutex
	pending []uint64 // by partition; 0 until something is heard
	total   uint64
}

func newBacklog(observer Observer, partitions int) *backlog {
	return &backlog{observer: observer, pending: make([]uint64, partitions)}
}

// heard notes what a partition has left, and tells the observer.
func (b *backlog) heard(partition int, pending uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total += pending - b.pending[partition]
	b.pending[partition] = pending
	b.observer.Pending(b.total)
}

// leastPause between two questions keeps many partitions from asking the server for more than it has work with: 20 a second.
const leastPause = 50 * time.Millisecond

// watchBacklog asks for the partitions' backlogs, one after the other, all within stall.Interval if they are not more than a hundred. A
// partition's own messages tell of it sooner, but only to the worker that has it.
func (e *exclusive) watchBacklog(ctx context.Context) {
	partitions := e.w.opts.Partitions
	pause := max(stall.Interval/time.Duration(partitions), leastPause)
	for p := 0; ; p = (p + 1) % partitions {
		e.lookAt(ctx, p)
		if !retry.Sleep(ctx, pause) {
			return
		}
	}
}

// lookAt asks the server about a partition's consumer.
func (e *exclusive) lookAt(ctx context.Context, p int) {
	asked, done := context.WithTimeout(ctx, stall.Interval)
	defer done()
	c, err := e.js.Consumer(asked, e.w.opts.Stream, topology.PartitionConsumer(e.w.opts.Consumer, p))
	if err != nil {
		e.w.stalls.Unknown(p, time.Now())
		return
	}
	info := c.CachedInfo()
	e.backlog.heard(p, info.NumPending)
	owned, _ := e.members.Standing(p)
	// What another worker has is that one's to tell of.
	e.w.stalls.Saw(p, info, e.handing[p].Load() || !owned && pinOf(info) != "", time.Now())
	e.custody.saw(p, info, time.Now())
}
