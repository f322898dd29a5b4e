package ingest

import (
	"log/slog"
	"time"
)

const (
	// restartsWindow and restartsMany say when restarts of a partition are too many: one after a fault is how the worker
	// recovers, but what keeps coming does not recover.
	restartsWindow = time.Minute
	restartsMany   = 3

	// restartsSay is how often the log has a warning of them, for each partition.
	restartsSay = 10 * time.Second
)

// restarts counts how often a worker begins a partition anew.
type restarts struct {
	since  time.Time // the window's begin
	n      int       // in it
	warned time.Time
	silent int // since the last line in the log
}

// say notes one, and logs it: as a warning where they keep coming, and then not each.
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
