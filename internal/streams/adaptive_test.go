package streams

import (
	"testing"
	"time"
)

// A pause is a fraction of the recent duration of batches, within bounds. Earlier durations don't matter.
func TestPausesFollowThePace(t *testing.T) {
	var n adaptivePoll
	if got := n.next(); got != shortestPause {
		t.Errorf("before the first batch, the pause is %v, want %v", got, shortestPause)
	}
	for _, c := range []struct{ pace, min, max time.Duration }{
		{time.Microsecond, shortestPause, shortestPause},
		{100 * time.Microsecond, 20 * time.Microsecond, 30 * time.Microsecond},
		{time.Second, longestPause, longestPause},
		{26 * time.Microsecond, shortestPause, 10 * time.Microsecond},
	} {
		for range 100 {
			n.learn(c.pace)
		}
		if got := n.next(); got < c.min || got > c.max {
			t.Errorf("with a batch every %v: pause %v, want %v to %v", c.pace, got, c.min, c.max)
		}
	}
}
