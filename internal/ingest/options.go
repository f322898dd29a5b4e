package ingest

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// Options says what the worker reads, where its results go, and how it treats what goes wrong.
type Options struct {
	topology.Topology // its streams and consumers at the server

	More []*nats.Conn // connections beside the worker's first, and like it the caller's: see MILLRACE_NATS_CONNECTIONS

	Operators []operator.Operator // as the pipelines run them
	Format    operator.Format     // of result bodies

	// Memory is what everything between the pull and the acknowledgement may take together, in bytes: see prepareBudget. 0: as much
	// as the batches that may be in hand.
	Memory int64

	Linger       time.Duration // how long the oldest payload of a batch waits for more
	DrainTimeout time.Duration // how long stopping may take until the rest is given back
	ConfirmAcks  bool          // have the server confirm every acknowledgement of an input

	Logger   *slog.Logger // what repeats for each payload is logged each time: bound it (see loglimit)
	Observer Observer
	Batches  inflight.BatchObserver  // nil for none
	Records  inflight.RecordObserver // nil for none

	// settled is called for each input whose result is stored, before Observer.Settled, each time it is. It is for tests, which
	// tell inputs apart; nil for nothing.
	settled func(sequence uint64, stored time.Time)

	// publishTimeout is after how long an answer to a result counts as lost, if not 0. It is for tests.
	publishTimeout time.Duration
}
