package partitioned

import (
	"log/slog"
	"time"
)

const (
	// restartsWindow and restartsMany tell when a partition restarts too often. A worker recovers from a fault with one restart. A
	// fault that keeps coming back needs somebody to look at it.
	restartsWindow = time.Minute
	restartsMany   = 3

	// restartsSay is how often the log has a warning about restarts of a partition.
	restartsSay = 10 * time.Second
)

// restarts counts how often a worker begins a partition again.
type restarts struct {
	since  time.Time // when the window began
	n      int       // restarts in the window
	warned time.Time
	silent int // restarts since the last line in the log
}

// say notes a restart and logs it. If restarts keep coming, the line is a warning, and not every restart has one.
func (r *restarts) say(log *slog.Logger, because error, now time.Time) {
	if now.Sub(r.since) > restartsWindow {
		r.since, r.n = now, 0
	}
	if r.n++; r.n < restartsMany {
		log.Info("beginning the partition anew", "because", because)
		return
	}
	if now.Sub(r.warned) < restartsSay {
		r.silent++
		return
	}
	log.Warn("beginning the partition anew, again and again; its inputs are held up", "because", because, "times", r.n,
		"within", now.Sub(r.since).Round(time.Second).String(), "not_logged", r.silent)
	r.warned, r.silent = now, 0
}
