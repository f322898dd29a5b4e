package ingest

import (
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
)

// Memory reads how much memory deliveries in flight take.
func (w *Worker) Memory() inflight.Memory { return w.pool.Memory() }

const (
	// connectionBuffers is what a connection takes for what it reads and writes. What is published while it is down is not kept.
	connectionBuffers = 1 << 20

	// ledgerBytes is what a full ledger takes for inputs that are settled or were given back.
	ledgerBytes = 12 << 20

	// pullShare is the part of the memory that prefetched messages may take: a quarter.
	pullShare = 4
)

// fixedMemory is what the worker takes at most besides deliveries in flight: prefetched messages, connections, the ledger.
func (w *Worker) fixedMemory() int64 {
	return int64(w.consumers())*w.pullSize(w.consumer).Memory(w.nc) + int64(len(w.conns))*connectionBuffers + ledgerBytes
}

// consumers is how many this worker may pull from at once.
func (w *Worker) consumers() int {
	if w.opts.Exclusive {
		return w.opts.Partitions
	}
	return 1
}

// pullSize is what one request to a consumer brings at most: what is fast, or less where that would be more than a quarter of the
// memory for all consumers together.
func (w *Worker) pullSize(c jetstream.Consumer) pull.Size {
	size := pull.NewSize(c.CachedInfo().Config)
	if w.opts.Memory == 0 {
		return size
	}
	return size.Within(int(w.opts.Memory/pullShare)/w.consumers(), w.nc)
}
