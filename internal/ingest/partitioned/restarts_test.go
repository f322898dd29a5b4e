package partitioned

import (
	"testing"
	"time"

	"millrace/internal/ingest/natstest"
)

// TestRestartsThatKeepComingAreAWarning shows that repeated restarts are logged as warnings. The first restarts are
// normal recovery.
func TestRestartsThatKeepComingAreAWarning(t *testing.T) {
	t.Parallel()
	log := natstest.NewLog(t)
	var r restarts
	start := time.Now()
	for i := range 100 { // 20 s in total
		r.say(log.Logger(), errPinLost, start.Add(time.Duration(i)*200*time.Millisecond))
	}
	if info, warn := log.Count("level=INFO"), log.Count("level=WARN"); info != 2 || warn != 2 {
		t.Errorf("%d lines and %d warnings, want 2 and 2", info, warn)
	}
	if !log.Has("not_logged=") {
		t.Error("what was not logged is not counted")
	}
	r.say(log.Logger(), errPinLost, start.Add(time.Hour))
	if info := log.Count("level=INFO"); info != 3 {
		t.Errorf("one that comes an hour later is a warning too")
	}
}
