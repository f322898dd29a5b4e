package ingest

import (
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/shared"
	"millrace/internal/ingest/stall"
)

// Observer is told what happens to messages. Calls come from several goroutines and must not block. With exclusive delivery, Pending is
// told the backlog of all partitions together.
type Observer interface {
	results.Observer
	shared.Observer
	stall.Observer

	// Restarted is called when this worker begins a partition again because something was wrong.
	Restarted()

	// Reconnected is called when a connection to NATS was lost and is back.
	Reconnected()
}
