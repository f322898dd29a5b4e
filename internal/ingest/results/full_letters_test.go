package results

import (
	"errors"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/topology"
)

func (r *rig) change(stream string, with func(*jetstream.StreamConfig)) {
	r.Helper()
	c := r.StreamConfig(stream)
	with(&c)
	if _, err := r.JS.UpdateStream(r.Ctx(), c); err != nil {
		r.Fatal(err)
	}
}

// fill makes a stream of dead letters full.
func (r *rig) fill(stream string) {
	r.Helper()
	if _, err := r.JS.Publish(r.Ctx(), "deadletter.a", nil); err != nil {
		r.Fatal(err)
	}
	messages := int64(r.Stream(stream).CachedInfo().State.Msgs)
	r.change(stream, func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = messages, jetstream.DiscardNew })
}

// awaitFull waits until a worker reports that the stream of dead letters is full. The report must not name the stream
// of results.
func (r *rig) awaitFull() {
	r.Helper()
	r.Log.Await(r.TB, `msg="`+lettersNotStored+`" partition=3 attempt=1 stream=RESULTS_DEADLETTER error=`)
	if !r.Log.Has("maximum messages exceeded") {
		r.Error("the log doesn't say that the stream is full")
	}
	if r.Log.Has(notStored) {
		r.Error("the log blames the stream of results")
	}
}

// TestAFullStreamOfDeadLettersIsNamed shows that a lease waits for space when it begins and when it stores a dead
// letter. The log names the full stream.
func TestAFullStreamOfDeadLettersIsNamed(t *testing.T) {
	t.Parallel()
	t.Run("when a lease begins", func(t *testing.T) {
		t.Parallel()
		r, w, _ := letterRig(t, true, 64<<10)
		r.fill("RESULTS_DEADLETTER")
		opened := make(chan error, 1)
		go func() {
			_, err := OpenCommits(r.Ctx(), w, Partition{Number: 3, Owner: "owner"})
			opened <- err
		}()
		r.awaitFull()
		r.change("RESULTS_DEADLETTER", func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
		if err := <-opened; err != nil {
			t.Error(err)
		}
	})
	t.Run("when it stores a dead letter", func(t *testing.T) {
		t.Parallel()
		r, w, _ := letterRig(t, true, 64<<10)
		commits, err := OpenCommits(r.Ctx(), w, Partition{Number: 3, Owner: "owner"})
		if err != nil {
			t.Fatal(err)
		}
		r.fill("RESULTS_DEADLETTER")
		stored := make(chan error, 1)
		go func() {
			d := r.letterInput(w, letterCase{bytes: 1}, 1)
			stored <- commits.PublishDeadLetter(r.Ctx(), &d, TooLarge, errors.New("no"))
		}()
		r.awaitFull()
		r.change("RESULTS_DEADLETTER", func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
		if err := <-stored; err != nil {
			t.Error(err)
		}
	})
}

// TestAStreamOfDeadLettersThatTakesNoMarkersAnyMore shows that a lease doesn't wait forever. The next lease stores
// dead letters without markers.
func TestAStreamOfDeadLettersThatTakesNoMarkersAnyMore(t *testing.T) {
	t.Parallel()
	r, w, _ := letterRig(t, true, 64<<10)
	dead := topology.CommitSubjects("commits", "RESULTS_DEADLETTER")
	letters, _, err := letterStore(r.Ctx(), w, 3)
	if err != nil || letters == nil {
		t.Fatal(letters, err)
	}
	again := waitsFor(w, 3, letters)
	if !again(r.Ctx(), letters, lookEvery, jetstream.ErrNoStreamResponse) {
		t.Error("the lease ends although the stream takes markers")
	}
	r.change("RESULTS_DEADLETTER", func(c *jetstream.StreamConfig) {
		c.Subjects = slices.DeleteFunc(c.Subjects, func(s string) bool { return s == dead })
	})
	if again(r.Ctx(), letters, lookEvery, jetstream.ErrNoStreamResponse) {
		t.Error("the lease waits although the stream takes no markers")
	}
}
