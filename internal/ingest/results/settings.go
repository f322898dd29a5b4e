package results

import (
	"log/slog"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// Settings say what a Writer stores, and where.
type Settings struct {
	topology.Topology

	Operators []operator.Operator // as the pipelines run them
	Format    operator.Format     // of result bodies
	AckWait   time.Duration       // the consumer's
	Timeout   time.Duration       // after which an answer of the server counts as lost; 0: publisher.Timeout

	Log      *slog.Logger
	Observer Observer
	Progress func() // called when a result is stored

	// Stored is called for each input whose result is stored, before Observer.Settled, each time it is. It is for tests, which
	// tell inputs apart; nil for nothing.
	Stored func(sequence uint64, stored time.Time)
}

// Observer is told how deliveries end. Calls come from several goroutines and must not block.
type Observer interface {
	// Settled: a message came to its end. in and out are the bytes of the payload and of the result body
	// (0 where there is none), latency is from received to published, headroom what was left of AckWait.
	Settled(o inflight.Outcome, in, out int, latency, headroom time.Duration)
}
