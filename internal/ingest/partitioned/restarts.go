package partitioned

import (
	"log/slog"
	"time"
)

const (
	// restartsWindow is the period in which restartsMany restarts of a partition cause a warning. One restart recovers
	// from a single fault, but a recurring fault needs an administrator's attention.
	restartsWindow = time.Minute
	restartsMany   = 3

	// restartsSay is the minimum interval between two warnings about restarts of a partition.
	restartsSay = 10 * time.Second
)

// restarts counts and logs the restarts of a partition's lease.
type restarts struct {
	since  time.Time // start of the window
	n      int       // restarts in the window
	warned time.Time
	silent int // restarts since the last log line
}

// say records and logs a restart. If restarts recur, it logs a warning at most once per restartsSay.
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
