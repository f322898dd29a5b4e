package ingest

import (
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/shared"
	"millrace/internal/ingest/stall"
	"millrace/internal/ingest/trim"
)

// Observer receives message events. Calls come from several goroutines and must not block. With exclusive delivery, Pending
// receives the backlog of all partitions together.
type Observer interface {
	results.Observer
	shared.Observer
	stall.Observer
	trim.Observer

	// Restarted is called when this worker restarts a lease after a fault.
	Restarted()

	// Reconnected is called when a lost connection to NATS is restored.
	Reconnected()
}
