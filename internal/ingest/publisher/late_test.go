package publisher

import (
	"context"
	"errors"
	"testing"
	"time"

	"millrace/internal/ingest/jsapi"
)

// TestNothingIsSentAfterTheDeadline publishes with a passed deadline whose timer has not fired yet, as after a stop
// of the process.
func TestNothingIsSentAfterTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	nc := r.Connect(r.URL)
	singles, err := NewWindowed(jsapi.API{}, Timeout, nc)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Publisher{"one by one": singles, "in batches": NewBatched(singles, nil)} {
		answers := s.Publish(passed{t.Context()}, messages(1, 10, 10), nil)
		if len(answers) != 10 {
			t.Fatalf("%s: %d answers to 10 messages", name, len(answers))
		}
		for i, a := range answers {
			if !errors.Is(a.Err, context.DeadlineExceeded) {
				t.Errorf("%s: message %d: %v", name, i, a.Err)
			}
		}
	}
	stream := r.Stream("RESULTS")
	if n := stream.CachedInfo().State.LastSeq; n != 0 {
		t.Errorf("%d messages were stored after their time", n)
	}
}

// passed is a context that isn't done although its deadline has passed.
type passed struct{ context.Context }

func (passed) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }
