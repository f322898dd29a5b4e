package ingest

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// Options defines the worker's input, the destination of its results, and how it handles failures.
type Options struct {
	topology.Topology // the streams and consumers on the server

	More []*nats.Conn // additional connections, which the caller still owns; see MILLRACE_NATS_CONNECTIONS

	Operators []operator.Operator // the operators that the pipelines run
	Format    operator.Format     // format of result bodies

	Split      frame.Splitter       // how messages are split into records, and the limits of a frame; MaxRecord is ignored
	Decompress compression.Encoding // how messages are compressed
	Compress   compression.Encoding // how results are compressed

	// Memory is the limit in bytes on the memory that inputs use from the pull to the acknowledgement. 0 means as much as the
	// allowed batches in flight need.
	Memory int64

	Linger       time.Duration // how long the oldest payload of a batch waits for more payloads
	DrainTimeout time.Duration // how long the worker drains after a stop before it gives back unfinished deliveries
	ConfirmAcks  bool          // whether the server confirms every acknowledgement of an input

	Logger   *slog.Logger // must limit repeated messages, because the worker logs some for every payload (see loglimit)
	Observer Observer
	Batches  inflight.BatchObserver  // nil for none
	Records  inflight.RecordObserver // nil for none

	// settled is called each time the result of an input is stored, before Observer.Settled. It is for tests, which need to
	// identify inputs; nil for none.
	settled func(sequence uint64, stored time.Time)

	// publishTimeout is the time after which a published result without a response is considered lost. 0 means publisher.Timeout.
	// It is for tests.
	publishTimeout time.Duration
}
