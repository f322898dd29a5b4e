package results

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/store"
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
		again            [2]uint64     // number of repeated markers for a result stream without results, and for dead letters
	}{
		{0, 0, 24 * time.Hour, [2]uint64{0, 0}}, {time.Hour, 0, 20 * time.Minute, [2]uint64{1, 0}},
		{time.Hour, 0, 10 * time.Minute, [2]uint64{0, 0}}, {0, time.Hour, 20 * time.Minute, [2]uint64{0, 1}},
		{24 * time.Hour, time.Hour, 20 * time.Minute, [2]uint64{0, 1}}, {time.Hour, 24 * time.Hour, 20 * time.Minute, [2]uint64{1, 0}},
		{time.Hour, time.Hour, 20 * time.Minute, [2]uint64{1, 1}},
	} {
		for _, busy := range []bool{false, true} {
			r, _ := newRig(t, func(s *jetstream.StreamConfig) {
				s.Subjects, s.AllowAtomicPublish, s.MaxAge = []string{"results.>", "commits.RESULTS.>"}, true, c.results
			})
			r.Create(jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}})
			r.Create(jetstream.StreamConfig{
				Name: "DEAD", Subjects: []string{"deadletter.>", "commits.DEAD.>"}, AllowAtomicPublish: true, MaxAge: c.letters,
			})
			commits := r.lease(r.writer(func(o *Options) { o.Exclusive, o.Consumer = true, "millrace" }), "owner")
			commits.resultAge.stored, commits.letterAge.stored = time.Now().Add(-c.since), time.Now().Add(-c.since)
			want := func(stream string, markers uint64) {
				t.Helper()
				if got := r.Stream(stream).CachedInfo().State.LastSeq; got != markers {
					t.Errorf("max_age is %v and %v, busy %v: %v after a lease began, %s has had %d markers, want %d",
						c.results, c.letters, busy, c.since, stream, got, markers)
				}
			}
			for n := range 3 { // later rounds are too early in any case
				if busy && n < 2 {
					natstest.Must(commits.commit(r.Ctx(), store.Batch{}))(t)
				} else {
					natstest.OK(t, commits.Keep(r.Ctx()))
				}
				want("DEAD", 1+c.again[1]) // includes the fence
			}
			if busy {
				want("RESULTS", 1+2) // one per batch
			} else {
				want("RESULTS", 1+c.again[0])
			}
		}
	}
}

// TestADeadLetterRenewsItsMarker shows that no marker is stored again soon after a dead letter.
func TestADeadLetterRenewsItsMarker(t *testing.T) {
	t.Parallel()
	r, w := provisioned(t, true, 64<<10, nil)
	commits := r.lease(w, "owner")
	commits.letterAge = markerAge{time.Hour, time.Now().Add(-20 * time.Minute)}
	d := r.input(1, []byte("x"))
	natstest.OK(t, commits.PublishDeadLetter(r.Ctx(), &d, TooLarge, errors.New("no")))
	if got := len(r.Stored("RESULTS_DEADLETTER")); got != 3 {
		t.Errorf("%d messages are stored, want a fence, a dead letter and its marker", got)
	}
}

// TestANewLeaseKnowsTheDeadLettersOfRecords shows that a new lease stores only missing dead letters, although the
// server has no ids of the stored ones.
func TestANewLeaseKnowsTheDeadLettersOfRecords(t *testing.T) {
	t.Parallel()
	r, w := provisioned(t, true, 64<<10, nil)
	w.o.ResultIDs = false
	d := r.failedFrame(w, nil, lines(1, 1))
	d.Sequence = 7
	for n, records := range [][]int{{1}, {0, 1}} {
		commits := r.lease(w, fmt.Sprint(n))
		if settled, err := commits.Known(r.Ctx(), &d); err != nil || settled {
			t.Errorf("an input of which only some records have dead letters is settled: %v, %v", settled, err)
		}
		if last := commits.Beyond(); n > 0 && last != d.Sequence {
			t.Errorf("earlier leases have stored something up to input %d, want %d", last, d.Sequence)
		}
		var letters []*deadLetter
		for _, i := range records {
			letters = append(letters, w.newRecordLetter(&d, i))
		}
		natstest.Must(commits.storeLetters(r.Ctx(), letters, new(partials)))(t)
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

// keptStream is a stream with commit markers and fast batches. It implements store.Markers.
type keptStream struct {
	stored []*nats.Msg // messages from sequence 1 on; nil for a marker
	last   store.StoredMarker
	tries  int // number of messages that the stream has received

	delivered uint64 // last input that was delivered before the first marker
	// refuse returns the reason for which the stream refuses a message and all later ones of its batch. If refuse is
	// nil, the stream accepts all messages.
	refuse func(*nats.Msg) error
}

func (s *keptStream) Last(context.Context) (store.StoredMarker, error) { return s.last, nil }

func (s *keptStream) Write(_ context.Context, _ store.Way, expected uint64, msgs []*nats.Msg, m *store.Marker) (uint64, error) {
	if expected != s.last.At {
		return 0, &store.WrongLastError{Last: s.last.At}
	}
	for _, each := range msgs {
		s.tries++
		if s.refuse != nil {
			if err := s.refuse(each); err != nil {
				return 0, err
			}
		}
		kept := *each // the caller reuses the message
		s.stored = append(s.stored, &kept)
	}
	s.stored = append(s.stored, nil)
	s.last = store.StoredMarker{Marker: *m, At: uint64(len(s.stored))}
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
			ids = append(ids, store.IDOf(m.Header))
		}
	}
	return ids
}

// commits returns a Commits that stores fast batches in s.
func (r *rig) commits(w *Writer, s *keptStream) *Commits {
	r.Helper()
	again := func(context.Context, store.Markers, int, error) bool { return true }
	o := store.ChainOptions{Owner: "owner", Created: time.Unix(1, 0), Way: store.Fast, Again: again, LookUp: s.delivered}
	results, _, err := store.OpenChains(r.Ctx(), o, s, nil)
	natstest.OK(r, err)
	c := NewCommits(w, results, nil)
	c.Writer = w
	return c
}

// settle stores the results of a batch in s.
func (r *rig) settle(w *Writer, s *keptStream, b *inflight.Batch) {
	r.Helper()
	natstest.OK(r, r.commits(w, s).Store(r.Ctx(), b, new(Buffers), noSink{}))
}

// TestPartsBeforeAnErrorAreStoredOnce refuses one part of a result. The parts before it are stored and aren't sent
// again. Without ids, the server would store them twice.
func TestPartsBeforeAnErrorAreStoredOnce(t *testing.T) {
	t.Parallel()
	r, w := newRig(t, nil)
	w.o.ResultIDs = false
	w.size.stream.Store(1000)
	b := &inflight.Batch{}
	b.Add(r.failedFrame(w, nil, lines(slices.Repeat([]int{4}, 40)...)))
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
	r.settle(w, s, b)
	var want []string
	for n := range f.Parts {
		m := w.part(&b.Items[0], n)
		want = append(want, store.IDOf(m.Header))
	}
	if got := s.ids(); len(want) < 5 || refused != 1 || !slices.Equal(got, want) {
		t.Errorf("a stream that refused %d parts has %q, want each part once: %q", refused, got, want)
	}
}

// TestAResultThatIsCommittedLateSaysSo checks the header of a result that is committed late. Lookups use this header
// to limit their search.
func TestAResultThatIsCommittedLateSaysSo(t *testing.T) {
	t.Parallel()
	r, w := newRig(t, nil)
	for want, age := range map[string]time.Duration{"": 0, "1": time.Hour} {
		b, s := r.payloads(1), &keptStream{}
		b.Items[0].Cleared, b.Items[0].Stored = time.Now().Add(-age), time.Now().Add(-age)
		r.settle(w, s, b)
		if got := s.stored[1].Header.Get(HeaderDeliveries); got != want {
			t.Errorf("%v after the first delivery, the result has the number of deliveries %q, want %q", age, got, want)
		}
	}
}

// TestACommitOfAKnownResultIsLookedUp shows that a result of a worker without markers isn't stored again. It is looked up at once if the input was
// delivered before the first marker. Otherwise it is looked up after the server has refused an atomic batch because of the id.
func TestACommitOfAKnownResultIsLookedUp(t *testing.T) {
	t.Parallel()
	for delivered, tries := range map[uint64]int{0: 1, 1: 0} {
		r, w := newRig(t, nil)
		b, s := r.payloads(1), &keptStream{delivered: delivered}
		b.Items[0].First = false
		r.Put(&nats.Msg{Subject: "results.web.0", Header: ResultHeader(&b.Items[0], "crc32c")})
		s.refuse = func(*nats.Msg) error {
			if s.tries > 1 {
				return nil
			}
			return &jetstream.APIError{Code: 400, ErrorCode: 10201} // nats-server: the batch has a known id
		}
		r.settle(w, s, b)
		if ids := s.ids(); s.tries != tries || len(ids) > 0 || !b.IsSettled(0) {
			t.Errorf("delivered up to %d: a stream that has a result received it %d times, and stored %q; settled: %v", delivered, s.tries, ids, b.IsSettled(0))
		}
	}
}

// TestALeaseEndsWhenItsStreamTakesBatchesInAnotherWay shows that a lease ends when its kind of batch is no longer
// possible. Otherwise the lease would repeat its batches forever.
func TestALeaseEndsWhenItsStreamTakesBatchesInAnotherWay(t *testing.T) {
	t.Parallel()
	r, w := newRig(t, nil)
	ctx, giveUp := context.WithCancel(r.Ctx())
	defer giveUp()
	b, s := r.payloads(1), &keptStream{}
	s.refuse = func(*nats.Msg) error {
		if s.tries == 3 {
			giveUp()
		}
		return errors.New("the stream takes no such batches")
	}
	c := r.commits(w, s)
	c.kind = topology.AtomicCommits // the stream accepts no fast batches now
	if err := c.Store(ctx, b, new(Buffers), noSink{}); !errors.Is(err, errSettingsChanged) || b.IsSettled(0) {
		t.Errorf("after %d refused batches, the lease ends with %v, want %v", s.tries, err, errSettingsChanged)
	}
}

// fill makes the stream of dead letters full.
func (r *rig) fill() {
	r.Helper()
	messages := int64(r.Put(&nats.Msg{Subject: "deadletter.a"}).Sequence)
	r.Change("RESULTS_DEADLETTER", func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = messages, jetstream.DiscardNew })
}

// TestAFullStreamOfDeadLettersIsNamed shows that a lease waits for space when it begins and when it stores a dead
// letter. The log names the full stream, and not the stream of results.
func TestAFullStreamOfDeadLettersIsNamed(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(r *rig, w *Writer) (wait func() error){
		"when a lease begins": func(r *rig, w *Writer) func() error {
			return func() error {
				_, err := OpenCommits(r.Ctx(), w, Partition{Number: 3, Owner: "owner"})
				return err
			}
		},
		"when it stores a dead letter": func(r *rig, w *Writer) func() error {
			commits, d := r.lease(w, "owner"), r.input(1, []byte("x"))
			return func() error { return commits.PublishDeadLetter(r.Ctx(), &d, TooLarge, errors.New("no")) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w := provisioned(t, true, 64<<10, nil)
			wait := prepare(r, w)
			r.fill()
			done := make(chan error, 1)
			go func() { done <- wait() }()
			r.Log.Await(t, `msg="`+lettersNotStored+`" partition=3 attempt=1 stream=RESULTS_DEADLETTER error=`)
			if !r.Log.Has("maximum messages exceeded") {
				t.Error("the log doesn't say that the stream is full")
			}
			if r.Log.Has(notStored) {
				t.Error("the log blames the stream of results")
			}
			r.Change("RESULTS_DEADLETTER", func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
			natstest.OK(t, <-done)
		})
	}
}

// TestAStreamOfDeadLettersThatTakesNoMarkersAnyMore shows that a lease doesn't wait forever. The next lease stores
// dead letters without markers.
func TestAStreamOfDeadLettersThatTakesNoMarkersAnyMore(t *testing.T) {
	t.Parallel()
	r, w := provisioned(t, true, 64<<10, nil)
	letters, _, err := letterStore(r.Ctx(), w, 3)
	if err != nil || letters == nil {
		t.Fatal(letters, err)
	}
	again := waitsFor(w, 3, letters)
	if !again(r.Ctx(), letters, lookEvery, jetstream.ErrNoStreamResponse) {
		t.Error("the lease ends although the stream takes markers")
	}
	dead := topology.CommitSubjects("commits", "RESULTS_DEADLETTER")
	r.Change("RESULTS_DEADLETTER", func(c *jetstream.StreamConfig) {
		c.Subjects = slices.DeleteFunc(c.Subjects, func(s string) bool { return s == dead })
	})
	if again(r.Ctx(), letters, lookEvery, jetstream.ErrNoStreamResponse) {
		t.Error("the lease waits although the stream takes no markers")
	}
}

// TestKeepWaitsForNoCommit would end with a deadlock if Keep waited for the commit.
func TestKeepWaitsForNoCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &Commits{busy: make(chan struct{}, 1)}
		defer c.lock()()
		natstest.OK(t, c.Keep(t.Context()))
	})
}
