package results

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestMarkersAreStoredAgainBeforeTheyAge shows that each stream gets markers as often as its maximum age requires.
// The dead letters' marker is also stored again during a long run of results without dead letters. A stream without a
// maximum age gets no repeated marker, and may be full.
func TestMarkersAreStoredAgainBeforeTheyAge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		results, letters time.Duration // max_age
		since            time.Duration // time since the lease began
		// again has two numbers of repeated markers. The first is for a result stream without results, the second for
		// dead letters.
		again [2]uint64
	}{
		{0, 0, 24 * time.Hour, [2]uint64{0, 0}}, {time.Hour, 0, 20 * time.Minute, [2]uint64{1, 0}}, {time.Hour, 0, 10 * time.Minute, [2]uint64{0, 0}},
		{0, time.Hour, 20 * time.Minute, [2]uint64{0, 1}}, {24 * time.Hour, time.Hour, 20 * time.Minute, [2]uint64{0, 1}},
		{time.Hour, 24 * time.Hour, 20 * time.Minute, [2]uint64{1, 0}}, {time.Hour, time.Hour, 20 * time.Minute, [2]uint64{1, 1}},
	} {
		for _, busy := range []bool{false, true} {
			r := newRig(t)
			r.Create(jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}})
			r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "commits.RESULTS.>"}, AllowAtomicPublish: true, MaxAge: c.results})
			r.Create(jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"deadletter.>", "commits.DEAD.>"}, AllowAtomicPublish: true, MaxAge: c.letters})
			w := r.writerWith(func(o *Options) { o.Exclusive, o.Consumer = true, "millrace" })
			commits, err := OpenCommits(r.Ctx(), w, Partition{Owner: "owner"})
			if err != nil {
				t.Fatal(err)
			}
			commits.resultAge.stored, commits.letterAge.stored = time.Now().Add(-c.since), time.Now().Add(-c.since)
			ofResults, ofLetters := 1+c.again[0], 1+c.again[1] // includes the fences
			if busy {
				ofResults = 1 + 2 // one per batch
			}
			for n := range 3 { // later rounds are too early in any case
				if busy && n < 2 {
					_, err = commits.commit(r.Ctx(), resultBatch{})
				} else {
					err = commits.Keep(r.Ctx())
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := r.Stream("DEAD").CachedInfo().State.LastSeq; got != ofLetters {
					t.Errorf("max_age is %v and %v, busy %v: %v after a lease began, the stream of dead letters has had %d markers, want %d", c.results, c.letters, busy, c.since, got, ofLetters)
				}
			}
			if got := r.Stream("RESULTS").CachedInfo().State.LastSeq; got != ofResults {
				t.Errorf("max_age is %v and %v, busy %v: %v after a lease began, the stream of results has had %d markers, want %d", c.results, c.letters, busy, c.since, got, ofResults)
			}
		}
	}
}

// TestADeadLetterRenewsItsMarker shows that no marker is stored again soon after a dead letter.
func TestADeadLetterRenewsItsMarker(t *testing.T) {
	t.Parallel()
	r, w, _ := letterRig(t, true, 64<<10)
	commits, err := OpenCommits(r.Ctx(), w, Partition{Owner: "owner"})
	if err != nil {
		t.Fatal(err)
	}
	commits.letterAge = markerAge{time.Hour, time.Now().Add(-20 * time.Minute)}
	d := r.letterInput(w, letterCase{bytes: 1}, 1)
	if err := commits.PublishDeadLetter(r.Ctx(), &d, TooLarge, errors.New("no")); err != nil {
		t.Fatal(err)
	}
	if got := len(r.Stored("RESULTS_DEADLETTER")); got != 3 {
		t.Errorf("%d messages are stored, want a fence, a dead letter and its marker", got)
	}
}

// TestANewLeaseKnowsTheDeadLettersOfRecords shows that a new lease stores only missing dead letters, although the
// server has no ids of the stored ones.
func TestANewLeaseKnowsTheDeadLettersOfRecords(t *testing.T) {
	t.Parallel()
	r, w, _ := letterRig(t, true, 64<<10)
	w.o.ResultIDs = false
	const sequence = 7
	d := r.letterInput(w, letterCase{bytes: 1, framed: true}, sequence)
	for n, records := range [][]int{{1}, {0, 1}} {
		commits, err := OpenCommits(r.Ctx(), w, Partition{Owner: fmt.Sprint(n)})
		if err != nil {
			t.Fatal(err)
		}
		if settled, err := commits.Settled(r.Ctx(), &d); err != nil || settled {
			t.Errorf("an input is settled, of which some records have dead letters: %v, %v", settled, err)
		}
		if last := commits.Beyond(); n > 0 && last != sequence {
			t.Errorf("earlier leases have stored something up to input %d, want %d", last, sequence)
		}
		var letters []*deadLetter
		for _, i := range records {
			letters = append(letters, w.newRecordLetter(&d, i))
		}
		if err := commits.storeLetters(r.Ctx(), letters, new(partials)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, m := range r.Stored("RESULTS_DEADLETTER") {
		if of := m.Header.Get(HeaderRecord); of != "" {
			got = append(got, of)
		}
	}
	if want := []string{"1", "0"}; !slices.Equal(got, want) {
		t.Errorf("records %q have dead letters, want %q", got, want)
	}
}
