// Package pause detects that the process did not run for a while, because it was stopped (SIGSTOP) or the machine was
// suspended. Data that the process had read or was about to send is then older than it seems. Start reading at Watch.
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
	// Bound is how long the process may go without running before that counts as a stall. A busy machine stays below
	// it.
	Bound = 3 * time.Second

	// tick is the interval at which the process records that it runs.
	tick = 250 * time.Millisecond

	// after is how long after a stall a message may be handed on that was read before it.
	after = 5 * time.Second
)

// Watch records when the process ran. It is safe for concurrent use.
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

// Process returns the watch of this process. The first call starts its goroutine, which lives as long as the process.
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

// Count returns the number of stalls up to now.
func (w *Watch) Count() uint64 {
	w.Note(time.Now())
	return w.count.Load()
}

// Since corrects at, the earliest moment at which a message that is handed on now may have reached this process. A
// message that arrives soon after a stall may have been read before it.
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

// Note records that the process runs now.
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

// Elapsed returns the time between two moments of this process, by the monotonic clock or the wall clock, whichever
// shows more. The monotonic clock stops while a machine is suspended, and the wall clock may be set back.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), time.Duration(to.UnixNano()-from.UnixNano()))
}
