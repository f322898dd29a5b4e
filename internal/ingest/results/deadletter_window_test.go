package results

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/commit"
)

// TestTheWindowOfDeadLettersIsThatOfTheirStream uses a shorter window for dead letters than for results. A dead
// letter older than its window is looked up and not stored again.
func TestTheWindowOfDeadLettersIsThatOfTheirStream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, Duplicates: 2 * time.Hour})
	r.Create(jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"deadletter.>"}, Duplicates: time.Minute})
	w := r.writer()
	d := r.input([]byte("payload"))
	d.Cleared, d.Stored = time.Now().Add(-10*time.Minute), time.Now().Add(-10*time.Minute)
	// The server has forgotten the id.
	stored := &nats.Msg{Subject: "deadletter.web.0", Header: nats.Header{commit.HeaderID: {DeadLetterID(&d, TooLarge)}}}
	if _, err := r.JS.PublishMsg(r.Ctx(), stored); err != nil {
		t.Fatal(err)
	}
	if err := w.PublishDeadLetter(r.Ctx(), &d, TooLarge, errors.New("too large")); err != nil {
		t.Fatal(err)
	}
	if n := r.Stream("DEAD").CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d dead letters are stored, want 1", n)
	}
}
