package ingest

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrMemory says that Options.Memory is too little to work with.
var ErrMemory = errors.New("ingest: too little memory")

// Memory is what a worker's payloads in hand take of what they may, in bytes.
type Memory struct {
	Limit, Used int64
	Waits       uint64 // times that the next payload had to wait for some
}

// Memory reads it.
func (w *Worker) Memory() (m Memory) {
	m.Limit, m.Used, m.Waits = w.budget.read()
	return m
}

const (
	// keepShare is the part of the memory that groups and desks may keep while they are not in use: an eighth.
	keepShare = 8

	// batchesInHand is how many full batches' worth of memory is of use, for each that can be on a device: one there, and one being
	// published.
	batchesInHand = 2

	// connectionBuffers is what a connection takes for what it reads and writes. What is published while it is down is not kept.
	connectionBuffers = 1 << 20

	// ledgerBytes is what a full ledger takes for inputs that are settled or were given back.
	ledgerBytes = 12 << 20

	// pullShare is the part of the memory that what is pulled ahead may take: a quarter.
	pullShare = 4

	// requestsAtOnce is how many requests a pull has with the server.
	requestsAtOnce = 2

	// pulledBookkeeping is what a message takes in the client beside its bytes, with its places in the channel.
	pulledBookkeeping = 544

	// leastPulled is how many messages a request is for at least.
	leastPulled = 64

	// usualHeaders is what subjects and headers of a payload take where nothing is said of them.
	usualHeaders = 1024

	// leastPayloads is how many of the smallest payloads a worker must be able to hold to be worth starting.
	leastPayloads = 1024
)

// prepareBudget sets how much memory deliveries in hand may take: what batches in hand need, or what Options.Memory leaves of it
// after what is taken whatever the load. It fails where that is not enough to work with.
func (w *Worker) prepareBudget() error {
	w.costs = newCosts(&w.opts)
	most := int64(0)
	for _, p := range w.pipes {
		payloads, bytes := int64(p.BatchPayloads()), int64(p.BatchBytes())
		most += batchesInHand * int64(p.Slots()) * (bytes + bytes/8 + payloads*(w.costs.perPayload()+usualHeaders))
		w.payloads.limit += batchesInHand * int64(p.Slots()) * int64(w.maxBytes)
	}
	w.keep.most = most / keepShare
	if w.opts.Memory > 0 {
		fixed := w.fixedMemory()
		if least := fixed + w.leastMemory(); w.opts.Memory < least {
			return fmt.Errorf("%w: %d MiB are left for payloads and results, and these settings need %d MiB, %d MiB of them for what "+
				"is pulled ahead: raise the container's memory limit or MILLRACE_MEMORY_LIMIT by %d MiB, or lower MILLRACE_LANES, "+
				"MILLRACE_BATCH_BYTES, MILLRACE_BATCH_PAYLOADS, MILLRACE_PARTITIONS or MILLRACE_NATS_CONNECTIONS",
				ErrMemory, w.opts.Memory>>20, ceilMiB(least), ceilMiB(fixed), ceilMiB(3*(least-w.opts.Memory)))
		}
		left := w.opts.Memory - fixed
		w.keep.most = min(w.keep.most, left/keepShare)
		most = min(most, left-left/keepShare)
	}
	w.budget.limit = most
	return nil
}

func ceilMiB(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// fixedMemory is what the worker takes at most beside deliveries in hand: what waits in the client, connections, the ledger.
func (w *Worker) fixedMemory() int64 {
	return int64(w.consumers())*w.pullLimit(w.consumer).memory(w.nc) + int64(len(w.links))*connectionBuffers + ledgerBytes
}

// consumers is how many this worker may pull from at once.
func (w *Worker) consumers() int {
	if w.opts.Exclusive {
		return w.opts.Partitions
	}
	return 1
}

// pullLimit is what one request to a consumer brings at most: what is fast, or less where that would be more than a quarter of the
// memory for all consumers together. It is never less than the largest message, or the consumer would stall.
func (w *Worker) pullLimit(c jetstream.Consumer) pullLimit {
	l := newPullLimit(c.CachedInfo().Config)
	if w.opts.Memory == 0 {
		return l
	}
	share := int(w.opts.Memory/pullShare) / (requestsAtOnce * w.consumers())
	l.least = min(l.least, share/2)
	l.messages = max(min(l.messages, (share-l.over(w.nc).Bytes())/pulledBookkeeping), min(l.messages, leastPulled))
	return l
}

// memory is what one consumer's pull has in the client at most.
func (l pullLimit) memory(nc *nats.Conn) int64 {
	return requestsAtOnce * (int64(l.over(nc).Bytes()) + int64(l.messages)*pulledBookkeeping)
}

// leastMemory is what deliveries in hand need at the least: the largest payload and its headers twice, so that one can follow the other, and some small
// ones.
func (w *Worker) leastMemory() int64 {
	largest := min(w.nc.MaxPayload(), int64(w.maxBytes))
	least := 2*(largest+largest/8) + leastPayloads*w.costs.perPayload()
	return least * keepShare / (keepShare - 1)
}
