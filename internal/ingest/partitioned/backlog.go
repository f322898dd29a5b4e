package partitioned

import "sync"

// backlog is what the consumers of all partitions have yet to deliver together. Every worker reports the whole of it, whichever
// partitions it has, as with shared delivery.
type backlog struct {
	observer Observer

	mu      sync.Mutex
	pending []uint64 // by partition; 0 until it is known
	total   uint64
}

func newBacklog(observer Observer, partitions int) *backlog {
	return &backlog{observer: observer, pending: make([]uint64, partitions)}
}

// update notes what a partition has left, and tells the observer the total.
func (b *backlog) update(partition int, pending uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total += pending - b.pending[partition]
	b.pending[partition] = pending
	b.observer.Pending(b.total)
}
