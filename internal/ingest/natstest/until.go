package natstest

import (
	"testing"
	"time"
)

// The pause between two checks of Until grows from firstLook to lastLook, because most conditions query a server, which takes
// processor time.
const (
	firstLook = 2 * time.Millisecond
	lastLook  = 100 * time.Millisecond
)

// Until returns once cond is true, and fails the test if cond isn't true within Patience. Use it for lasting states without a
// notification. It can miss a state that lasts only milliseconds.
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
