package results

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

// refusedBatch returns a batch of n inputs that an operator refused, and their indexes.
func (r *rig) refusedBatch(n int) (*inflight.Batch, []int) {
	r.Helper()
	b := &inflight.Batch{}
	var refused []int
	for i := range n {
		m := pull.Stored(r.NC, "INGEST", "millrace", 1, &jetstream.RawStreamMsg{
			Subject: "ingest.web.0", Sequence: uint64(i + 1), Data: fmt.Appendf(nil, "payload %d", i+1), Time: time.Now(),
		})
		d, err := inflight.NewDelivery(m, time.Now())
		if err != nil {
			r.Fatal(err)
		}
		b.Add(d)
		b.Refuse(i, &operator.RecordError{Operator: "crc32c", Text: "operator crc32c: no"})
		refused = append(refused, i)
	}
	return b, refused
}

// TestDeadLettersOfRefusedPayloadsAreInOrder has more dead letters than are published together, and some finished
// inputs.
func TestDeadLettersOfRefusedPayloadsAreInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}})
	w := r.writer()
	b, refused := r.refusedBatch(lettersAtOnce + 100)
	for i := range b.Items {
		// The duplicate window has passed, so the stream doesn't recognize the ids of stored messages.
		if again := i%2 == 1; again {
			b.Items[i].First, b.Items[i].Cleared, b.Items[i].Stored = false, time.Time{}, time.Now().Add(-time.Hour)
		}
	}
	finished := map[int]bool{3: true, lettersAtOnce + 5: true}
	for i := range finished {
		if _, err := r.JS.PublishMsg(r.Ctx(), &nats.Msg{Subject: "results.web.0", Header: ResultHeader(&b.Items[i], "crc32c")}); err != nil {
			t.Fatal(err)
		}
	}
	stored := 0
	err := w.PublishRefused(r.Ctx(), b, refused, func(i int) {
		if i != stored {
			t.Errorf("input %d is reported as number %d", i, stored)
		}
		stored++
	})
	if err != nil || stored != len(refused) {
		t.Fatalf("%d of %d dead letters are reported, error %v", stored, len(refused), err)
	}
	s := r.Stream("RESULTS")
	at := uint64(len(finished))
	for i := range b.Items {
		if finished[i] {
			continue
		}
		at++
		m, err := s.GetMsg(r.Ctx(), at)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Header.Get(HeaderSequence); got != fmt.Sprint(i+1) || string(m.Data) != fmt.Sprintf("payload %d", i+1) || m.Header.Get(HeaderError) != "operator crc32c: no" {
			t.Fatalf("message %d is the dead letter of %s, %q: %s; want that of %d", at, got, m.Data, m.Header.Get(HeaderError), i+1)
		}
	}
	if last := s.CachedInfo().State.LastSeq; last != at {
		t.Errorf("%d messages are stored, want %d", last, at)
	}
}

// TestARefusedPayloadThatCanNotBeStoredEndsTheBatch shows that no input is settled if its dead letter may be missing.
func TestARefusedPayloadThatCanNotBeStoredEndsTheBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}}) // no stream stores dead letters
	b, refused := r.refusedBatch(5)
	err := r.writer().PublishRefused(r.Ctx(), b, refused, func(i int) { t.Errorf("input %d is reported", i) })
	if err == nil {
		t.Error("no error")
	}
}

// BenchmarkRefusedPayloads stores the dead letters of a batch of payloads that an operator refused. The server has file storage and
// shares the machine.
//
//	go test ./internal/ingest/results -run xxx -bench RefusedPayloads -benchtime 5x
func BenchmarkRefusedPayloads(b *testing.B) {
	const payloads = 4096
	r := newRig(b)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, Duplicates: 100 * time.Millisecond})
	w := r.writer()
	batch, refused := r.refusedBatch(payloads)
	for b.Loop() {
		for i := range batch.Items {
			d := &batch.Items[i]
			d.Stored = d.Stored.Add(time.Nanosecond) // changes the ids
			d.First, d.Cleared = true, time.Now()
		}
		if err := w.PublishRefused(r.Ctx(), batch, refused, func(int) {}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*payloads)/b.Elapsed().Seconds(), "letters/s")
}

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
