package ingest

import (
	"context"
	"time"

	"millrace/internal/ingest/retry"
)

const (
	// idleEvery is how often endWhenIdle looks.
	idleEvery = 50 * time.Millisecond

	// idleChecks is how often in a row endWhenIdle must find nothing. A message on its way from the connection to a batch is in no count.
	idleChecks = 3
)

// endWhenIdle ends a drain early if there is nothing to drain: no connection is up, and the worker holds no payload. A drain with a
// connection ends by itself.
func (w *Worker) endWhenIdle(drainCtx context.Context, end func()) {
	idle := 0
	for retry.Sleep(drainCtx, idleEvery) {
		if idle++; w.anyConnected() || w.pool.InFlight() > 0 || w.pool.Memory().Used > 0 {
			idle = 0
		}
		if idle == idleChecks {
			w.log.Info("there is no connection to NATS and nothing in hand, so the worker ends at once")
			end()
		}
	}
}

// anyConnected reports whether a connection is up.
func (w *Worker) anyConnected() bool {
	for _, nc := range w.conns {
		if nc.IsConnected() {
			return true
		}
	}
	return false
}
