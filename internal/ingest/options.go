package ingest

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/stall"
	"millrace/internal/ingest/topology"
	"millrace/internal/ingest/trim"
	"millrace/internal/operator"
)

// Options defines the worker's input, the destination of its results, and its handling of failures.
type Options struct {
	topology.Topology // the streams and consumers on the server

	More []*nats.Conn // additional connections, which the caller still owns; see MILLRACE_NATS_CONNECTIONS

	Operators []operator.Operator // the operators that the pipelines run
	Format    operator.Format     // format of result bodies

	Split      frame.Splitter       // framing of messages, and the limits of a frame; MaxRecord is ignored
	Decompress compression.Encoding // compression of messages
	Compress   compression.Encoding // compression of results

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

	// publishTimeout is the time after which a published result without a response is considered lost. 0 means publisher.Timeout.
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
