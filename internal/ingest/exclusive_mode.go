package ingest

import (
	"context"
	"sync/atomic"

	"millrace/internal/ingest/inflight"
)

// exclusiveMode is exclusive delivery of one worker. It joins the other workers when it runs.
type exclusiveMode struct {
	w      *Worker
	joined atomic.Pointer[exclusive] // nil until then
}

// Run implements mode.
func (m *exclusiveMode) Run(intake, drainCtx context.Context, stop context.CancelCauseFunc) {
	e, err := newExclusive(m.w)
	if err != nil {
		stop(err)
		return
	}
	m.joined.Store(e)
	e.run(intake, drainCtx, stop)
	m.w.pool.Abandon(func(*inflight.Batch) {}) // batches that were on a device when drainCtx ended
}

// Owned implements mode.
func (m *exclusiveMode) Owned() int {
	if e := m.joined.Load(); e != nil {
		return e.members.Owned()
	}
	return 0
}
