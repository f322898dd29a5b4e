package shared

import (
	"context"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
)

// Fetch implements quarantine.Intake. During quarantine, the source pulls only here.
func (s *source) Fetch(n int, wait time.Duration, take func(inflight.Delivery)) (came int, err error) {
	s.occupied.Store(false)
	defer s.occupied.Store(true)
	wait = min(wait, pull.BeatsPerRequest*s.size.Beat)
	return pull.Fetch(s.nc, s.request(), min(n, s.size.Messages), wait, func(msg *pull.Message) {
		if d, ok := s.receive(msg, true); ok {
			take(d)
		}
	})
}

// AwaitQuiet implements quarantine.Intake. It also flushes the acknowledgements. If a crash lost one, a settled payload
// would be quarantined. It ignores errors while the connection is temporarily down.
func (s *source) AwaitQuiet(ctx context.Context, n int) error {
	if s.ledger.await(ctx, n) != nil {
		return nil // the caller checks ctx
	}
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
	defer cancel()
	if err := s.conns.Flush(ctx); err != nil && s.conns.Closed() {
		return err
	}
	return nil
}
