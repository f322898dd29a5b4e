package results

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestMarkersAreStoredAgainBeforeTheyAge: in each stream with markers, as often as the stream with the least age needs it. That of the dead letters
// is stored again also while there are results and no dead letters.
func TestMarkersAreStoredAgainBeforeTheyAge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		results, letters time.Duration // max_age
		since            time.Duration // since the lease began
		again            bool
	}{
		{0, 0, 24 * time.Hour, false}, {time.Hour, 0, 20 * time.Minute, true}, {time.Hour, 0, 10 * time.Minute, false},
		{0, time.Hour, 20 * time.Minute, true}, {24 * time.Hour, time.Hour, 20 * time.Minute, true}, {time.Hour, 24 * time.Hour, 20 * time.Minute, true},
	} {
		r := newRig(t)
		r.Create(jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}})
		r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "commits.RESULTS.>"}, AllowAtomicPublish: true, MaxAge: c.results})
		r.Create(jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"deadletter.>", "commits.DEAD.>"}, AllowAtomicPublish: true, MaxAge: c.letters})
		w := r.writerWith(func(s *Settings) { s.Exclusive, s.Consumer = true, "millrace" })
		commits, err := OpenCommits(r.Ctx(), w, Partition{Owner: "owner"})
		if err != nil {
			t.Fatal(err)
		}
		commits.renewed = time.Now().Add(-c.since)
		if _, err := commits.commit(r.Ctx(), resultBatch{}); err != nil {
			t.Fatal(err)
		}
		last := r.Stream("RESULTS").CachedInfo().State.LastSeq
		for range 2 { // the second time it is too early in any case
			if err := commits.Keep(r.Ctx()); err != nil {
				t.Fatal(err)
			}
		}
		more := map[bool]uint64{true: 1}[c.again]
		for stream, want := range map[string]uint64{"RESULTS": last + more, "DEAD": 1 + more} {
			if got := r.Stream(stream).CachedInfo().State.LastSeq; got != want {
				t.Errorf("max_age is %v and %v: %v after a lease began, stream %s has had %d markers, want %d", c.results, c.letters, c.since, stream, got, want)
			}
		}
	}
}
