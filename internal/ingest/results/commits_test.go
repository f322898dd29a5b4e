package results

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
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

// keptStream is a stream with commit markers and fast batches. It implements commit.Store.
type keptStream struct {
	stored []*nats.Msg // messages from sequence 1 on; nil for a marker
	last   commit.StoredMarker
	// refuse returns the reason for which the stream refuses a message and all later ones of its batch. If refuse is
	// nil, the stream accepts all messages.
	refuse func(*nats.Msg) error
}

func (s *keptStream) Last(context.Context) (commit.StoredMarker, error) { return s.last, nil }

func (s *keptStream) Write(_ context.Context, _ commit.Way, expected uint64, msgs []*nats.Msg, m *commit.Marker) (uint64, error) {
	if expected != s.last.At {
		return 0, &commit.WrongLastError{Last: s.last.At}
	}
	for _, each := range msgs {
		if s.refuse != nil {
			if err := s.refuse(each); err != nil {
				return 0, err
			}
		}
		s.stored = append(s.stored, each)
	}
	s.stored = append(s.stored, nil)
	s.last = commit.StoredMarker{Marker: *m, At: uint64(len(s.stored))}
	return s.last.At, nil
}

func (s *keptStream) Begun(context.Context, uint64, uint64) (uint64, error) { return 0, nil }

func (s *keptStream) Next(_ context.Context, behind uint64, subject string) (uint64, nats.Header, error) {
	for at := behind; at < uint64(len(s.stored)); at++ {
		if m := s.stored[at]; m != nil && m.Subject == subject {
			return at + 1, m.Header, nil
		}
	}
	return 0, nil, nil
}

func (s *keptStream) ids() (ids []string) {
	for _, m := range s.stored {
		if m != nil {
			ids = append(ids, commit.ID(m.Header))
		}
	}
	return ids
}

// commits returns a Commits that stores fast batches in s.
func (r *rig) commits(w *Writer, s *keptStream) *Commits {
	r.Helper()
	again := func(context.Context, commit.Store, int, error) bool { return true }
	results, _, err := commit.Open(r.Ctx(), commit.Options{Owner: "owner", Created: time.Unix(1, 0), Way: commit.Fast, Again: again}, s, nil)
	if err != nil {
		r.Fatal(err)
	}
	c := NewCommits(results, nil, w.o.ResultPrefix)
	c.w = w
	return c
}

type noSink struct{}

func (noSink) Stored(context.Context, []*inflight.Delivery)                             {}
func (noSink) Undeliverable(context.Context, *inflight.Batch, int, Reason, error) error { return nil }
func (noSink) CollectRefused(context.Context, *inflight.Batch, []int) error             { return nil }
func (noSink) Incomplete(*inflight.Batch, int, error) error                             { return nil }

// TestPartsBeforeAnErrorAreStoredOnce refuses one part of a result. The parts before it are stored and aren't sent
// again. Without ids, the server would store them twice.
func TestPartsBeforeAnErrorAreStoredOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}})
	w := r.writerWith(func(o *Options) { o.ResultIDs = false })
	w.size.stream.Store(1000)
	var lines []byte
	for range 40 {
		lines = append(lines, "line\n"...)
	}
	b := &inflight.Batch{}
	b.Add(r.failedFrame(w, nil, lines))
	f := b.Items[0].Frame
	f.Fail(nil) // its results are complete
	refused, s := 0, &keptStream{}
	s.refuse = func(m *nats.Msg) error {
		if m.Header.Get(HeaderPart) != fmt.Sprintf("3/%d", len(f.Parts)) || refused > 0 {
			return nil
		}
		refused++
		return errors.New("the stream has no room")
	}
	var buffers Buffers
	if err := r.commits(w, s).Settle(r.Ctx(), b, &buffers, noSink{}); err != nil {
		t.Fatal(err)
	}
	var want []string
	for n := range f.Parts {
		m := frameWriter{w}.part(&b.Items[0], n)
		want = append(want, commit.ID(m.Header))
	}
	if got := s.ids(); len(want) < 5 || refused != 1 || !slices.Equal(got, want) {
		t.Errorf("a stream that refused %d parts has %q, want each part once: %q", refused, got, want)
	}
}

// TestAResultThatIsCommittedLateSaysSo checks the header of a result that is committed late. Lookups use this header
// to limit their search.
func TestAResultThatIsCommittedLateSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}})
	w := r.writer()
	for name, age := range map[string]time.Duration{"": 0, "1": time.Hour} {
		d := r.input([]byte("payload"))
		d.Cleared, d.Stored = time.Now().Add(-age), time.Now().Add(-age)
		b := &inflight.Batch{}
		b.Add(d)
		b.Bodies.Add([]byte("{}"))
		s := &keptStream{}
		var buffers Buffers
		if err := r.commits(w, s).Settle(r.Ctx(), b, &buffers, noSink{}); err != nil {
			t.Fatal(err)
		}
		if got := s.stored[1].Header.Get(HeaderDeliveries); got != name {
			t.Errorf("%v after the first delivery, the result has the number of deliveries %q, want %q", age, got, name)
		}
	}
}

// TestACommitOfAKnownResultIsLookedUp shows that a result isn't sent again after the server refuses an atomic batch
// because of its id.
func TestACommitOfAKnownResultIsLookedUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}})
	w := r.writer()
	b := &inflight.Batch{}
	b.Add(r.input([]byte("payload")))
	b.Bodies.Add([]byte("{}"))
	if _, err := r.JS.PublishMsg(r.Ctx(), &nats.Msg{Subject: "results.web.0", Header: ResultHeader(&b.Items[0], "crc32c")}); err != nil {
		t.Fatal(err)
	}
	refused, s := 0, &keptStream{}
	s.refuse = func(*nats.Msg) error {
		if refused++; refused == 1 {
			return &jetstream.APIError{Code: 400, ErrorCode: codeDuplicate}
		}
		return nil
	}
	var buffers Buffers
	if err := r.commits(w, s).Settle(r.Ctx(), b, &buffers, noSink{}); err != nil {
		t.Fatal(err)
	}
	if ids := s.ids(); refused != 1 || len(ids) > 0 || !b.IsSettled(0) {
		t.Errorf("a stream that knows a result has got it %d times, and stored %q; settled: %v", refused, ids, b.IsSettled(0))
	}
}

// TestALeaseEndsWhenItsStreamTakesBatchesInAnotherWay shows that a lease ends when its kind of batch is no longer
// possible. Otherwise the lease would repeat its batches forever.
func TestALeaseEndsWhenItsStreamTakesBatchesInAnotherWay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}})
	w := r.writer()
	b := &inflight.Batch{}
	b.Add(r.input([]byte("payload")))
	b.Bodies.Add([]byte("{}"))
	ctx, giveUp := context.WithCancel(r.Ctx())
	defer giveUp()
	refused, s := 0, &keptStream{}
	s.refuse = func(*nats.Msg) error {
		if refused++; refused == 3 {
			giveUp()
		}
		return errors.New("the stream takes no such batches")
	}
	c := r.commits(w, s)
	c.way = topology.AtomicCommits // the stream accepts no fast batches now
	var buffers Buffers
	if err := c.Settle(ctx, b, &buffers, noSink{}); !errors.Is(err, errSettingsChanged) || b.IsSettled(0) {
		t.Errorf("after %d batches in vain the lease ends with %v, want %v", refused, err, errSettingsChanged)
	}
}
