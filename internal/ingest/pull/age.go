package pull

import (
	"time"

	"millrace/internal/ingest/pause"
)

// age computes, for each message taken from a queue, a lower bound of its arrival time. Only the goroutine that takes messages
// may use it.
type age struct {
	taken uint64    // number of messages taken so far
	at    time.Time // time of the latest mark call
	until uint64    // number of messages that were taken or waiting at the latest mark call
	since time.Time // lower bound of the arrival time for the first until messages
}

// mark records waiting, the number of messages in the queue at the time now.
func (a *age) mark(now time.Time, waiting int) {
	a.since, a.at, a.until = a.at, now, a.taken+uint64(waiting)
}

// took records that one message was taken, and returns a lower bound of its arrival time. left is the number of messages that remain.
func (a *age) took(left int) time.Time {
	a.taken++
	if a.taken <= a.until {
		return a.since
	}
	// The message arrived after the latest mark call.
	now := time.Now()
	came := pause.Process().Since(a.at, now)
	a.mark(now, left)
	a.since = came // some waiting messages may have arrived just after came
	return came
}
