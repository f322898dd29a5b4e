package ingest

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/shared"
	"millrace/internal/ingest/topology"
)

const (
	// connectionBuffers is the memory in bytes for a connection's read and write buffers. There is no reconnect buffer.
	connectionBuffers = 1 << 20

	// pullShare limits prefetched messages to a quarter of the memory.
	pullShare = 4
)

// CheckMemory returns a *inflight.MemoryError if Options.Memory is too small for a worker with the given devices and connections.
// c has the consumer's settings, or is zero if the consumer doesn't exist yet. batchBytes is the capacity of a batch.
func (o *Options) CheckMemory(server pull.Server, c jetstream.ConsumerConfig, devices, connections, batchBytes int) error {
	return o.poolSettings(server, c, connections).Check(devices, int64(batchBytes))
}

// ConsumerSettings returns the settings of the worker's consumer. They are zero if the consumer doesn't exist yet or can't be
// read.
func ConsumerSettings(ctx context.Context, nc *nats.Conn, t topology.Topology) jetstream.ConsumerConfig {
	js, err := t.API.New(nc)
	if err != nil {
		return jetstream.ConsumerConfig{}
	}
	consumer, err := findConsumer(ctx, js, t)
	if err != nil {
		return jetstream.ConsumerConfig{}
	}
	return consumer.CachedInfo().Config
}

func (o *Options) poolSettings(server pull.Server, c jetstream.ConsumerConfig, connections int) inflight.Options {
	return inflight.Options{
		Costs: o.costs(), Split: o.Split, Decompress: o.Decompress, Memory: o.Memory, Fixed: o.fixedMemory(server, c, connections),
		Largest: server.MaxPayload(),
	}
}

// fixedMemory returns the maximum memory in bytes of prefetched messages, connections and the ledger. The worker takes it in
// addition to the memory of deliveries in flight.
func (o *Options) fixedMemory(server pull.Server, c jetstream.ConsumerConfig, connections int) int64 {
	return int64(o.consumers())*o.size(server, c).Memory(server) + int64(connections)*connectionBuffers + shared.LedgerBytes
}

func (o *Options) costs() inflight.Costs {
	c := inflight.NewCosts(o.Format, o.Operators)
	if o.Compress != compression.None {
		return c.Compressed()
	}
	return c
}

// pullSize returns the maximum size of one request to a consumer. It is the fastest size, or a smaller one that keeps all
// consumers together within a quarter of the memory.
func (o *Options) pullSize(c jetstream.Consumer, nc *nats.Conn) pull.Size {
	return o.size(nc, c.CachedInfo().Config)
}

// size returns the result of pullSize for a consumer with these settings.
func (o *Options) size(server pull.Server, c jetstream.ConsumerConfig) pull.Size {
	size := pull.NewSize(c)
	if o.Memory == 0 {
		return size
	}
	return size.Within(int(o.Memory/pullShare)/o.consumers(), server)
}

// consumers returns the maximum number of consumers that a worker pulls from at once.
func (o *Options) consumers() int {
	if o.Exclusive {
		return o.Partitions
	}
	return 1
}
