package pull

import (
	"time"

	"millrace/internal/ingest/pause"
)

// age tells of what is taken from a queue since when it can have been there. It is for the goroutine that takes.
type age struct {
	taken uint64    // so far
	at    time.Time // the latest mark
	until uint64    // what was taken or waiting then, counted from the first; what is behind came later
	since time.Time // for what is up to until
}

// mark notes how many are waiting now.
func (a *age) mark(now time.Time, waiting int) {
	a.since, a.at, a.until = a.at, now, a.taken+uint64(waiting)
}

// took notes that one was taken and so many are left. It returns a moment before the one taken came.
func (a *age) took(left int) time.Time {
	a.taken++
	if a.taken <= a.until {
		return a.since
	}
	// It came behind all that waited at the latest mark.
	now := time.Now()
	came := pause.Process().Since(a.at, now)
	a.mark(now, left)
	a.since = came // of what waits now some may have come as early
	return came
}
