package streams

import (
	"runtime"
	"time"
)

// adaptivePoll chooses the pauses between polls. A pause is a quarter of the recent time between completions. So a few
// polls find each completion, and a completion is noticed soon after it happens.
type adaptivePoll struct {
	since time.Time     // when the wait for the next completion began
	pace  time.Duration // recent time between completions
}

// The bounds of one pause. A shorter pause costs mostly kernel time; a longer one saves nothing.
const (
	shortestPause = 5 * time.Microsecond
	longestPause  = 200 * time.Microsecond
)

// begin prepares the calling goroutine for short sleeps. The caller must call end afterwards to undo that.
func (n *adaptivePoll) begin() (end func()) {
	runtime.LockOSThread()
	preciseTimers()
	return runtime.UnlockOSThread
}

// restart starts the wait for a batch when none was in flight before.
func (n *adaptivePoll) restart() { n.since = time.Now() }

// came records that a batch has completed while other batches are in flight.
func (n *adaptivePoll) came() {
	now := time.Now()
	n.learn(now.Sub(n.since))
	n.since = now
}

// learn records how long the wait for a completion took.
func (n *adaptivePoll) learn(waited time.Duration) { n.pace += (waited - n.pace) / 4 }

func (n *adaptivePoll) sleep() { shortSleep(n.next()) }

func (n *adaptivePoll) next() time.Duration { return min(max(n.pace/4, shortestPause), longestPause) }
