package partitioned

import "sync"

// backlog is the number of messages that the consumers of all partitions have not delivered yet. As with shared delivery, every
// worker reports the total, whichever partitions it owns.
type backlog struct {
	observer Observer

	mu      sync.Mutex
	pending []uint64 // by partition; 0 if unknown
	total   uint64
}

func newBacklog(observer Observer, partitions int) *backlog {
	return &backlog{observer: observer, pending: make([]uint64, partitions)}
}

// update sets a partition's backlog and reports the total to the observer.
func (b *backlog) update(partition int, pending uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total += pending - b.pending[partition]
	b.pending[partition] = pending
	b.observer.Pending(b.total)
}
