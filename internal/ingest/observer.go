package ingest

import (
	"time"

	"millrace/internal/ingest/inflight"
)

// Observer is told what happens to messages. Calls come from several goroutines and must not block.
type Observer interface {
	// Settled: a message came to its end. in and out are the bytes of the payload and of the result body
	// (0 where there is none), latency is from received to published, headroom what was left of AckWait.
	Settled(o inflight.Outcome, in, out int, latency, headroom time.Duration)
	// Redelivered: a message came that had been delivered before.
	Redelivered()
	// Pending: what the consumer has yet to deliver, as of the latest message; with exclusive delivery the consumers of all
	// partitions together.
	Pending(messages uint64)
	// Stalled: so many consumers have messages and deliver none; called again and again, mostly with 0.
	Stalled(consumers int)
	// Restarted: this worker began a partition anew because something was wrong.
	Restarted()
	// Reconnected: a connection to NATS was lost and is back.
	Reconnected()
}
