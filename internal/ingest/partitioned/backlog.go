package partitioned

import "sync"

// backlog is the number of messages that the consumers of all partitions have not delivered yet, and of those that they have
// delivered and that nobody has acknowledged yet. As with shared delivery, every worker reports the totals, whichever partitions
// it owns.
type backlog struct {
	observer Observer

	mu             sync.Mutex
	pending        counts
	unacknowledged counts
}

// counts are numbers by partition, 0 if unknown, and their total.
type counts struct {
	of    []uint64
	total uint64
}

// set sets the number of a partition and returns the total.
func (c *counts) set(partition int, n uint64) uint64 {
	c.total += n - c.of[partition]
	c.of[partition] = n
	return c.total
}

func newBacklog(observer Observer, partitions int) *backlog {
	return &backlog{observer: observer, pending: counts{of: make([]uint64, partitions)}, unacknowledged: counts{of: make([]uint64, partitions)}}
}

// update sets a partition's backlog and reports the total to the observer.
func (b *backlog) update(partition int, pending uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observer.Pending(b.pending.set(partition, pending))
}

// unsettled sets how many messages of a partition are delivered and not acknowledged, and reports the total to the observer.
func (b *backlog) unsettled(partition int, unacknowledged int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observer.Unacknowledged(b.unacknowledged.set(partition, uint64(max(unacknowledged, 0))))
}
