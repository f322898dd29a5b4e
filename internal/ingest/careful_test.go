package ingest

import (
	"context"
	"errors"
	"testing"
	"time"
)

// unanswered is a server that does not say what is outstanding.
type unanswered struct {
	surroundings
	at time.Time
}

func (s unanswered) now() time.Time { return s.at }

func (s unanswered) outstanding(context.Context) (all, redelivered int, err error) {
	return 0, 0, errors.New("no answer")
}

// TestCarefulWhereNothingIsKnownAtTheStart: an earlier process may have left a payload that breaks the device.
func TestCarefulWhereNothingIsKnownAtTheStart(t *testing.T) {
	c := &careful{around: unanswered{at: time.Unix(1000, 0)}, levels: levels{full: 8192, limit: 10}, caution: caution{horizon: time.Minute}}
	if c.due() {
		t.Error("there is reason for caution before anything was asked")
	}
	c.begin(t.Context())
	if !c.due() || c.stride() != 1 {
		t.Errorf("without an answer it pulls carefully: %t, and %d at once; want so, and one by one", c.due(), c.stride())
	}
	c.look(t.Context(), c.around.now())
	if !c.due() || c.stride() != 1 {
		t.Error("a second question without an answer ended the caution")
	}
}
