package results

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/commit"
)

// TestADeadLetterInItsOwnStreamHasItsPayloadOnce publishes a dead letter in two messages again, because no answer
// arrived. The stream must have its payload only once, although the payload's message has no id.
func TestADeadLetterInItsOwnStreamHasItsPayloadOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, Duplicates: time.Hour})
	w, input := r.writer(), r.input(make([]byte, 10))
	l := w.newDeadLetter(&input, TooLarge, errors.New("too large"))
	l.form = apart
	for range 2 {
		if err := l.publish(r.Ctx()); err != nil {
			t.Fatal(err)
		}
	}
	s := r.Stream("RESULTS")
	if n := s.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("%d messages are stored, want the payload and the letter", n)
	}
}

// TestAKeptInputHasAnID shows that a kept input has an id. The id is in Millrace's own header if the server need not
// remember ids.
func TestAKeptInputHasAnID(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, remembered := range []bool{true, false} {
		w := r.writerWith(func(o *Options) { o.ResultIDs = remembered })
		d := r.input([]byte("compressed"))
		h := w.newDeadLetter(&d, TooLarge, errors.New("too large")).input().Header
		if got := h[jetstream.MsgIDHeader] != nil; commit.ID(h) != inputID(&d) || got != remembered {
			t.Errorf("ids are remembered: %v; the headers are %v", remembered, h)
		}
	}
}
