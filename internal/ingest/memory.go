package ingest

import (
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/shared"
)

const (
	// connectionBuffers is the memory in bytes for a connection's read and write buffers. Messages that are published while the
	// connection is down are not kept.
	connectionBuffers = 1 << 20

	// pullShare is the share of the memory that prefetched messages may take: a quarter.
	pullShare = 4
)

// fixedMemory returns the maximum memory in bytes that the worker takes in addition to deliveries in flight: prefetched messages,
// connections and the ledger.
func (o *Options) fixedMemory(c jetstream.Consumer, conns natsconn.Connections) int64 {
	return int64(o.consumers())*o.pullSize(c, conns[0]).Memory(conns[0]) + int64(len(conns))*connectionBuffers + shared.LedgerBytes
}

// costs returns the costs of deliveries.
func (o *Options) costs() inflight.Costs {
	c := inflight.NewCosts(o.Format, o.Operators)
	if o.Compress != compression.None {
		return c.Compressed()
	}
	return c
}

// pullSize returns the maximum size of one request to a consumer. That is the fastest size, or less where it would take more than
// a quarter of the memory for all consumers together.
func (o *Options) pullSize(c jetstream.Consumer, nc *nats.Conn) pull.Size {
	size := pull.NewSize(c.CachedInfo().Config)
	if o.Memory == 0 {
		return size
	}
	return size.Within(int(o.Memory/pullShare)/o.consumers(), nc)
}

// consumers returns the maximum number of consumers that a worker pulls from at once.
func (o *Options) consumers() int {
	if o.Exclusive {
		return o.Partitions
	}
	return 1
}
