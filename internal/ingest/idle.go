package ingest

import (
	"context"
	"time"

	"millrace/internal/ingest/retry"
)

const (
	// idleEvery is the interval between the checks of endWhenIdle.
	idleEvery = 50 * time.Millisecond

	// idleChecks is the number of consecutive idle checks after which endWhenIdle ends the drain. One check isn't enough, because a
	// message on the way from a connection to a batch isn't counted.
	idleChecks = 3
)

// endWhenIdle ends a drain early if no connection is up and the worker holds no payload. A drain with a connection needs no such
// check.
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

func (w *Worker) anyConnected() bool {
	for _, nc := range w.conns {
		if nc.IsConnected() {
			return true
		}
	}
	return false
}
