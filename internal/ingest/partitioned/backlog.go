package partitioned

import "sync"

// backlog counts the undelivered and the unacknowledged messages of all partitions. As with shared delivery, every
// worker reports the totals over all workers.
type backlog struct {
	observer Observer

	mu             sync.Mutex
	pending        counts
	unacknowledged counts
}

// counts contains one number per partition (0 if unknown) and their total.
type counts struct {
	of    []uint64
	total uint64
}

func (c *counts) set(partition int, n uint64) uint64 {
	c.total += n - c.of[partition]
	c.of[partition] = n
	return c.total
}

func newBacklog(observer Observer, partitions int) *backlog {
	return &backlog{observer: observer, pending: counts{of: make([]uint64, partitions)}, unacknowledged: counts{of: make([]uint64, partitions)}}
}

// update sets a partition's number of undelivered messages, and reports the total to the observer.
func (b *backlog) update(partition int, pending uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observer.Pending(b.pending.set(partition, pending))
}

// unsettled sets a partition's number of delivered but unacknowledged messages, and reports the total to the observer.
func (b *backlog) unsettled(partition int, unacknowledged int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observer.Unacknowledged(b.unacknowledged.set(partition, uint64(max(unacknowledged, 0))))
}
