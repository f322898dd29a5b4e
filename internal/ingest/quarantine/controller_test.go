package quarantine

import (
	"context"
	"errors"
	"testing"
	"time"
)

// unanswered simulates a server that does not report outstanding deliveries.
type unanswered struct {
	environment
	at time.Time
}

func (s unanswered) now() time.Time { return s.at }

func (s unanswered) outstanding(context.Context) (all, redelivered int, err error) {
	return 0, 0, errors.New("no answer")
}

// TestCarefulWhereNothingIsKnownAtTheStart shows that a worker starts carefully if the server reports nothing. An
// earlier process may have left a payload that breaks the device.
func TestCarefulWhereNothingIsKnownAtTheStart(t *testing.T) {
	c := &Controller{around: unanswered{at: time.Unix(1000, 0)}, levels: Levels{Full: 8192, Limit: 10}, caution: caution{horizon: time.Minute}}
	if c.IsDue() {
		t.Error("there is reason for caution before anything was asked")
	}
	c.Begin(t.Context())
	if !c.IsDue() || c.stride() != 1 {
		t.Errorf("without an answer it pulls carefully: %t, and %d at once; want so, and one by one", c.IsDue(), c.stride())
	}
	c.check(t.Context(), c.around.now())
	if !c.IsDue() || c.stride() != 1 {
		t.Error("a second question without an answer ended the caution")
	}
}
