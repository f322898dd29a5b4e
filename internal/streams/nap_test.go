package streams

import (
	"testing"
	"time"
)

// A nap is a part of the time that batches take, within bounds, whatever came before.
func TestNapsFollowThePace(t *testing.T) {
	var n naps
	if got := n.next(); got != shortestNap {
		t.Errorf("with nothing known a nap is %v, want %v", got, shortestNap)
	}
	for _, c := range []struct{ pace, least, most time.Duration }{
		{time.Microsecond, shortestNap, shortestNap},
		{100 * time.Microsecond, 20 * time.Microsecond, 30 * time.Microsecond},
		{time.Second, longestNap, longestNap},
		{26 * time.Microsecond, shortestNap, 10 * time.Microsecond},
	} {
		for range 100 {
			n.learn(c.pace)
		}
		if got := n.next(); got < c.least || got > c.most {
			t.Errorf("a batch each %v: naps of %v, want %v to %v", c.pace, got, c.least, c.most)
		}
	}
}
