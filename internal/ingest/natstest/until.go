package natstest

import (
	"testing"
	"time"
)

// lookEvery is how long Until waits between two looks.
const lookEvery = 2 * time.Millisecond

// Until returns once cond holds, and fails the test if it does not hold within Patience. Use it for states that nothing announces, and
// that last: a state that passes within milliseconds can be missed.
func Until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	over := time.After(Patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("after %v still not: %s", Patience, what)
		}
	}
}
