package streams

import (
	"runtime"
	"time"
)

// naps are the pauses of who asks for the ends of batches: a quarter of the time in which they have been coming, so that
// a few looks find each, and one that is waited for comes back little late.
type naps struct {
	since time.Time     // when the wait for the next one began
	pace  time.Duration // from one to the next, of late
}

// The bounds of one nap. Shorter ones are mostly spent in the kernel; longer ones save nothing any more.
const (
	shortestNap = 5 * time.Microsecond
	longestNap  = 200 * time.Microsecond
)

// begin makes the calling goroutine one that can nap shortly; the function it returns ends that.
func (n *naps) begin() (end func()) {
	runtime.LockOSThread()
	preciseTimers()
	return runtime.UnlockOSThread
}

// restart begins the wait for a batch after there was none.
func (n *naps) restart() { n.since = time.Now() }

// came is for when a batch has ended and others are waited for.
func (n *naps) came() {
	now := time.Now()
	n.learn(now.Sub(n.since))
	n.since = now
}

// learn takes in how long one was waited for.
func (n *naps) learn(waited time.Duration) { n.pace += (waited - n.pace) / 4 }

func (n *naps) nap() { nap(n.next()) }

func (n *naps) next() time.Duration { return min(max(n.pace/4, shortestNap), longestNap) }
