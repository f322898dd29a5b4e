// Package pause notices that the process did not run for a while: it was stopped (SIGSTOP), or the machine was suspended. What the
// process had read, or was about to send, is older then than it looks.
//
// Packages natsconn, pull and results use it: a connection ends with a pause, and the ages of messages and results include it. Start
// reading at Watch.
package pause

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Bound is how long the process may go without running until that counts as a stall. A busy machine stays below it.
	Bound = 3 * time.Second

	// tick is how often the process notes that it runs.
	tick = 250 * time.Millisecond

	// after is for how long after a stall a message may come that was read before it.
	after = 5 * time.Second
)

// Watch notes when the process ran. Its methods may be called by several goroutines.
type Watch struct {
	mu           sync.Mutex
	last         time.Time // when the process was last known to run
	began, ended time.Time // of the latest stall
	count        atomic.Uint64
}

var (
	process Watch
	once    sync.Once
)

// Process is the watch of this process. The first call starts the goroutine that feeds it, which lives as long as the process.
func Process() *Watch {
	once.Do(func() {
		process.Note(time.Now())
		go func() {
			for now := range time.Tick(tick) {
				process.Note(now)
			}
		}()
	})
	return &process
}

// Count is how many stalls there were up to now, the present moment included.
func (w *Watch) Count() uint64 {
	w.Note(time.Now())
	return w.count.Load()
}

// Since corrects the earliest moment at which something may have reached this process that is handed on now: what comes soon after a
// stall may have come before it.
func (w *Watch) Since(at, now time.Time) time.Time {
	w.Note(now)
	if w.count.Load() == 0 {
		return at
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.began.Before(at) && now.Sub(w.ended) < after {
		return w.began
	}
	return at
}

// Note notes that the process runs now.
func (w *Watch) Note(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.last.IsZero():
	case !now.After(w.last):
		return
	case Elapsed(w.last, now) > Bound:
		w.began, w.ended = w.last, now
		w.count.Add(1)
	}
	w.last = now
}

// Elapsed is the time between two moments of this process, by the monotonic clock or by the wall clock, whichever says more: the first
// stands still while a machine is suspended, the second may be set back.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), time.Duration(to.UnixNano()-from.UnixNano()))
}
