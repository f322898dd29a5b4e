package natstest

import (
	"testing"
	"time"
)

// Until waits between two looks at first for firstLook, and in the end for lastLook: most conditions ask a server, which takes processor time.
const (
	firstLook = 2 * time.Millisecond
	lastLook  = 100 * time.Millisecond
)

// Until returns once cond holds, and fails the test if it does not hold within Patience. Use it for states that nothing announces, and
// that last: a state that passes within milliseconds can be missed.
func Until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	over := time.After(Patience)
	for wait := firstLook; !cond(); wait = min(wait*5/4, lastLook) {
		select {
		case <-time.After(wait):
		case <-over:
			t.Fatalf("after %v still not: %s", Patience, what)
		}
	}
}
