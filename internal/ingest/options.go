package ingest

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// Options say what the worker reads, where its results go, and what it does about failures.
type Options struct {
	topology.Topology // the streams and consumers on the server

	More []*nats.Conn // connections besides the worker's first. They stay the caller's too: see MILLRACE_NATS_CONNECTIONS

	Operators []operator.Operator // as the pipelines run them
	Format    operator.Format     // of result bodies

	// Memory is how many bytes everything between the pull and the acknowledgement may take together; 0: as much as the batches that
	// may be in flight.
	Memory int64

	Linger       time.Duration // how long the oldest payload of a batch waits for more
	DrainTimeout time.Duration // after a stop, how long until the worker gives back what it has not finished
	ConfirmAcks  bool          // have the server confirm every acknowledgement of an input

	Logger   *slog.Logger // messages that repeat for each payload are logged each time: limit them (see loglimit)
	Observer Observer
	Batches  inflight.BatchObserver  // nil for none
	Records  inflight.RecordObserver // nil for none

	// settled is called for each input whose result is stored, before Observer.Settled, each time it is. It is for tests, which
	// tell inputs apart; nil for nothing.
	settled func(sequence uint64, stored time.Time)

	// publishTimeout is after how long an answer to a result counts as lost, if not 0. It is for tests.
	publishTimeout time.Duration
}
