package ingest

import (
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/shared"
)

const (
	// connectionBuffers is the memory that a connection takes for what it reads and writes. What is published while it is down is not
	// kept.
	connectionBuffers = 1 << 20

	// pullShare is the part of the memory that prefetched messages may take: a quarter.
	pullShare = 4
)

// fixedMemory is the memory that the worker takes at most besides deliveries in flight: prefetched messages, connections, the ledger.
func (o *Options) fixedMemory(c jetstream.Consumer, conns natsconn.Connections) int64 {
	return int64(o.consumers())*o.pullSize(c, conns[0]).Memory(conns[0]) + int64(len(conns))*connectionBuffers + shared.LedgerBytes
}

// pullSize is how much one request to a consumer brings at most: what is fast, or less where that would be more than a quarter of the
// memory for all consumers together.
func (o *Options) pullSize(c jetstream.Consumer, nc *nats.Conn) pull.Size {
	size := pull.NewSize(c.CachedInfo().Config)
	if o.Memory == 0 {
		return size
	}
	return size.Within(int(o.Memory/pullShare)/o.consumers(), nc)
}

// consumers is how many consumers a worker may pull from at once.
func (o *Options) consumers() int {
	if o.Exclusive {
		return o.Partitions
	}
	return 1
}
