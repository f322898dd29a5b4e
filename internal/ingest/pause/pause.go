// Package pause detects that the process did not run for a while, because it was stopped (SIGSTOP) or the machine was suspended.
// After such a stall, data that the process had read or was about to send is older than it seems.
//
// Packages natsconn, pull and results use it. A connection doesn't survive a stall, and the ages of messages and results include
// stalls. Start reading at Watch.
package pause

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Bound is the longest time without running that is not a stall. A process on a busy machine still runs more often than that.
	Bound = 3 * time.Second

	// tick is the interval at which the process records that it runs.
	tick = 250 * time.Millisecond

	// after is the maximum time from the end of a stall until a message that was read before the stall is handed on.
	after = 5 * time.Second
)

// Watch records when the process ran. It is safe for concurrent use.
type Watch struct {
	mu           sync.Mutex
	last         time.Time // time of the latest Note
	began, ended time.Time // start and end of the latest stall
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

// Since corrects at, the earliest moment at which a message that is handed on now may have reached this process. Soon after a
// stall, Since returns the start of the stall if that is earlier, because the message may have been read before the stall.
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

// Elapsed returns the time between two moments of this process. It is the larger of the times by the monotonic clock and by the
// wall clock. The monotonic clock stops while a machine is suspended, and the wall clock may be set back.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), time.Duration(to.UnixNano()-from.UnixNano()))
}
