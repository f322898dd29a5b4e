package ingest

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/pull"
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
	return int64(o.consumers())*o.size(server, c).Memory(server) + int64(connections)*connectionBuffers + lease.LedgerBytes
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

// Status is a worker's state at one moment.
type Status struct {
	Stage     Stage
	Connected bool
	InHand    int // number of batches being filled, computed or settled
	// Partitions is the number of partitions that this worker owns with exclusive delivery. Each is assigned to the worker, and
	// the worker has received an input from it.
	Partitions int
	HeldBack   int           // number of payloads that failed alone and were given back while no other payload has succeeded
	Progress   time.Time     // time of the last progress: a batch was computed, or results were stored
	AckWait    time.Duration // the consumer's AckWait
}

// Status returns the worker's state. It makes no request to the server or a device.
func (w *Worker) Status() Status {
	return Status{
		Partitions: w.mode.Owned(), Stage: Stage(w.life.stage.Load()), Connected: w.conns.Connected(), HeldBack: w.judge.HeldBack(),
		InHand: w.pool.InFlight(), Progress: time.Unix(0, w.life.progress.Load()), AckWait: w.ackWait,
	}
}

// Shares calls share for each worker that has announced itself with exclusive delivery, starting with this worker. name and owns
// are as announced, so any client may have chosen them. self is true for this worker. Shares makes no request to the server.
func (w *Worker) Shares(share func(name string, self bool, owns []int)) {
	for _, s := range w.mode.Shares() {
		share(s.Name, s.Self, s.Owns)
	}
}

// Stalled returns an error if a consumer with messages has delivered none for two minutes although the worker requests them. The
// worker then isn't ready. Stalled makes no request to the server or a device.
func (w *Worker) Stalled() error { return w.stalls.Err(time.Now()) }

// Memory returns the memory that deliveries in flight use, and its limit.
func (w *Worker) Memory() inflight.Memory { return w.pool.Memory() }
