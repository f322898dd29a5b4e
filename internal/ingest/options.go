package ingest

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/stall"
	"millrace/internal/ingest/topology"
	"millrace/internal/ingest/trim"
	"millrace/internal/memory"
)

// Options defines the worker's input, the destination of its results, and its handling of failures.
type Options struct {
	// Topology has the streams and consumers on the server. Without a name of the input stream, the worker begins without a shard.
	topology.Topology

	// Many is true if the worker may get any number of shards; see Worker.Add.
	Many bool

	// Shards is the number of shards that the worker begins with. 0 means one.
	Shards int

	More []*nats.Conn // additional connections, which the caller still owns; see MILLRACE_NATS_CONNECTIONS

	memory.Messages // operators, and the forms of messages and results

	State *lease.StateOptions // the state of the stateful operator; nil without one

	// Memory is the limit in bytes on the memory of inputs from the pull to the acknowledgement. 0 means the memory that the
	// allowed batches in flight need.
	Memory int64

	Linger       time.Duration // longest wait of a batch's oldest payload for more payloads
	DrainTimeout time.Duration // time from a stop until the worker gives back unfinished deliveries
	ConfirmAcks  bool          // whether the server confirms every acknowledgement of an input

	Logger   *slog.Logger // must limit repeated messages, because the worker logs some for every payload (see loglimit)
	Observer Observer
	Batches  inflight.BatchObserver  // nil for none
	Records  inflight.RecordObserver // nil for none

	// settled is called each time the result of an input is stored, before Observer.Settled. Tests use it to identify inputs. It
	// may be nil.
	settled func(sequence uint64, stored time.Time)

	// publishTimeout is the time after which a published result without a response is considered lost. 0 means store.Timeout.
	// It is for tests.
	publishTimeout time.Duration
}

// Observer receives message events. Calls come from several goroutines and must not block. With exclusive delivery, Pending
// receives the backlog of all partitions together.
type Observer interface {
	results.Observer
	lease.Observer
	stall.Observer
	trim.Observer

	// Reconnected is called when a lost connection to NATS is restored.
	Reconnected()
}

// CheckMemory returns a *memory.Error if Options.Memory is too small for a worker with the given devices and connections. maxPayload
// is the server's max_payload. c has the consumer's settings, or is zero if the consumer doesn't exist yet. batchBytes is the capacity
// of a batch.
func (o *Options) CheckMemory(maxPayload int64, c jetstream.ConsumerConfig, devices, connections, batchBytes int) error {
	w := o.memory(maxPayload, pull.NewSize(c), connections)
	w.Pipelines, w.BatchBytes = devices, batchBytes
	return w.Check()
}

// memory returns the settings that bound the worker's memory, without its pipelines. size has the largest requests that the consumers
// allow.
func (o *Options) memory(maxPayload int64, size pull.Size, connections int) memory.Worker {
	return memory.Worker{
		Messages: o.Messages, Limit: o.Memory, MaxPayload: maxPayload, Consumers: o.ConsumerCount() * max(o.Shards, 1), Requests: size.Requests,
		Connections: connections, Many: o.Many,
	}
}

// pullSize returns the maximum size of one request to a consumer with settings c.
func (o *Options) pullSize(maxPayload int64, c jetstream.ConsumerConfig) pull.Size {
	size := pull.NewSize(c)
	w := o.memory(maxPayload, size, 0)
	size.Requests = w.PullRequests()
	return size
}
