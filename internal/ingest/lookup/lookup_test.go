package lookup

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// rig has a server with streams RESULTS and DEAD, and a lookup in both. There is one input per second, and input 10000 is stored now.
type rig struct {
	*natstest.Rig
	*Results
	now time.Time
}

func newRig(t *testing.T, bySubject bool) *rig {
	t.Helper()
	r := &rig{Rig: natstest.New(t), now: time.Now()}
	for name, subjects := range map[string]string{"RESULTS": "results.>", "DEAD": "deadletter.>"} {
		r.Create(jetstream.StreamConfig{Name: name, Subjects: []string{subjects}})
	}
	r.Results = New(r.JS, settings(bySubject))
	return r
}

func settings(bySubject bool) Options {
	return Options{
		Input: "IN", Streams: []string{"RESULTS", "DEAD"}, BySubject: bySubject, Deliveries: "Late", Part: "Part", Reason: "Reason",
		Log: slog.New(slog.DiscardHandler),
	}
}

func (r *rig) input(sequence uint64) Input {
	return Input{sequence, r.now.Add(-time.Duration(10000-sequence) * time.Second).UnixNano()}
}

// id returns the id of an input's message, which ends with rest.
func (r *rig) id(sequence uint64, rest string) string {
	return fmt.Sprintf("IN:%d:%d%s", sequence, r.input(sequence).Stored, rest)
}

// store stores a message with an id, and more headers in pairs.
func (r *rig) store(subject, id string, more ...string) {
	r.Helper()
	m := &nats.Msg{Subject: subject, Header: nats.Header{jetstream.MsgIDHeader: {id}}}
	for i := 0; i < len(more); i += 2 {
		m.Header.Set(more[i], more[i+1])
	}
	r.Put(m)
}

// results stores late results of the inputs from first to last.
func (r *rig) results(first, last uint64) {
	r.Helper()
	for sequence := first; sequence <= last; sequence++ {
		r.store("results.a", r.id(sequence, ""), "Late", "2")
	}
}

func (r *rig) find(inputs ...Input) []Found {
	r.Helper()
	wanted := make([]Wanted, len(inputs))
	for i, in := range inputs {
		wanted[i] = Wanted{Input: in, Subject: "results.a"}
	}
	before := time.Now()
	found, began, err := r.Find(r.Ctx(), wanted)
	natstest.OK(r, err)
	if began.Before(before) || began.After(time.Now()) {
		r.Errorf("the lookup began at %v, and was asked for at %v", began, before)
	}
	return found
}

// want checks whether one lookup finds the results of inputs.
func (r *rig) want(what string, done bool, sequences ...uint64) {
	r.Helper()
	inputs := make([]Input, len(sequences))
	for i, sequence := range sequences {
		inputs[i] = r.input(sequence)
	}
	for i, f := range r.find(inputs...) {
		if f.Done != done {
			r.Errorf("%s: input %d: found %v, want %v", what, sequences[i], f.Done, done)
		}
	}
}

func TestEachMessageIsReadOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	const n = 300
	for seq := uint64(1); seq <= n; seq++ {
		if seq%3 > 0 {
			r.results(seq, seq)
		}
	}
	r.store("deadletter.a", r.id(3, ":too_large"))
	for again := range 3 {
		for seq := uint64(1); seq <= n; seq++ {
			r.want(fmt.Sprint("lookup ", again), seq%3 > 0 || seq == 3 || again > 0 && seq == 6, seq)
		}
		if again == 0 {
			r.results(6, 6)
		}
	}
	if want := n*2/3 + 2; r.Results.read != want {
		t.Errorf("%d messages were read, want each of %d once", r.Results.read, want)
	}
}

// TestAStreamThatIsMadeAgain shows that results in a recreated stream are found, although their sequences were
// already read in the previous one. Results of the previous stream are no longer found.
func TestAStreamThatIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	for _, end := range []uint64{3, 5} {
		config := r.StreamConfig("RESULTS")
		natstest.OK(t, r.Stream("RESULTS").Purge(r.Ctx())) // a server may keep a deleted stream's files for its successor
		r.Delete("RESULTS")
		r.want("without the stream", false, 3)
		r.Create(config)
		r.results(end-2, end)
		r.want("in the new stream", true, end)
		r.want("in the first stream", end == 3, 2)
	}
}

// TestLongHeadersAreReadInParts shows that the bytes of a request are limited. Results have the headers of their
// inputs, which may be long.
func TestLongHeadersAreReadInParts(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	const n, size = 200, 60 << 10
	for seq := uint64(1); seq <= n; seq++ {
		r.store("results.a", r.id(seq, ""), "Much", strings.Repeat("x", size))
	}
	if n*size < 2*bytesAtOnce {
		t.Fatal("one request returns all messages")
	}
	if r.want("the last result", true, n); r.Results.read != n {
		t.Errorf("%d of %d messages were read", r.Results.read, n)
	}
}

func TestWhichIDsAreOfAnInput(t *testing.T) {
	t.Parallel()
	const stored = 1700000000123456789
	// Each pair states whether a result with this id is found for the original input 7, and for an input that reuses its sequence.
	for id, want := range map[string][2]bool{
		"IN:7:1700000000123456789":              {true, false},
		"IN:7:1700000000123456789:max_deliver":  {true, false},
		"IN:7:1700000000123456788":              {false, false},
		"IN:7":                                  {false, false}, // id of another program
		"IN:7:too_large":                        {false, false},
		"IN:70:1700000000123456789":             {false, false},
		"OTHER:7:1700000000123456789":           {false, false},
		"IN:x:1700000000123456789":              {false, false},
		"IN::":                                  {false, false},
		"":                                      {false, false},
		"IN:18446744073709551616:1700000000000": {false, false},
	} {
		x := newIndex()
		if in, ok := parse(id, "IN"); ok {
			x.add(in)
		}
		if got := [2]bool{x.has(Input{7, stored}), x.has(Input{7, stored + 1e9})}; got != want {
			t.Errorf("id %q: found %v, want %v", id, got, want)
		}
	}
}

func TestASequenceThatWasUsedAgain(t *testing.T) {
	t.Parallel()
	x := newIndex()
	for stored := int64(1); stored <= 3; stored++ {
		x.add(Input{5, stored})
		x.add(Input{5, stored})
	}
	for stored := int64(1); stored <= 4; stored++ {
		if got := x.has(Input{5, stored}); got != (stored <= 3) {
			t.Errorf("the message of moment %d: found %v", stored, got)
		}
	}
}

func TestTheIndexIsBounded(t *testing.T) {
	t.Parallel()
	x := newIndex()
	kept, refused := Input{perBlock * 3, 1}, 0
	for block := range uint64(2 * maxBlocks) {
		if !x.add(Input{block * perBlock, 1}) {
			refused++
		}
	}
	if len(x.blocks) > maxBlocks || refused != maxBlocks {
		t.Fatalf("%d blocks, %d refused, want %d of both", len(x.blocks), refused, maxBlocks)
	}
	x.keep([]Input{kept})
	if len(x.blocks) != 1 || !x.has(kept) || !x.add(Input{perBlock * 9, 1}) {
		t.Errorf("%d blocks are kept, want the one that is asked for", len(x.blocks))
	}
}

// TestALateBoundIsFound shows that messages stored before an input's delivery aren't read. With a long backlog, the
// input itself was stored long before its delivery.
func TestALateBoundIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		bySubject bool
		late      bool // whether no result was stored soon after its input's first delivery
		want      bool // whether the bound is later than the input itself
	}{
		{"in order", false, false, true}, {"in order by subject", true, false, true}, {"all late", false, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.bySubject)
			for seq := uint64(1); seq <= 200; seq++ {
				switch {
				case c.late:
					r.results(seq, seq)
				case c.bySubject && seq%2 == 0:
					r.store("results.b", r.id(seq, "")) // in another partition, which is ahead
				default:
					r.store("results.a", r.id(seq, ""))
				}
			}
			in := Wanted{Input: r.input(150), Subject: "results.a"}
			oldest := time.Unix(0, in.Stored)
			bound := r.bound(r.Ctx(), []Wanted{in, {Input: r.input(160), Subject: "results.b"}}, oldest)
			if latest := time.Now().Add(-2*time.Minute - slack); bound.After(latest) {
				t.Errorf("the bound is %v, later than the known limit", bound)
			} else if got := bound.After(oldest.Add(time.Minute)); got != c.want {
				t.Errorf("the bound is %v after the input was stored; better than that: %v, want %v", bound.Sub(oldest), got, c.want)
			}
		})
	}
}

// TestNoBoundByAnotherSubject shows that results of another subject don't change the bound of an input whose subject has none.
func TestNoBoundByAnotherSubject(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	r.store("results.b", r.id(1, ""))
	in := Wanted{Input: r.input(2), Subject: "results.a"}
	if oldest := time.Unix(0, in.Stored); !r.bound(r.Ctx(), []Wanted{in}, oldest).Equal(oldest) {
		t.Error("a result of another partition gives a bound")
	}
}

func TestWhereNothingCanBeLookedUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	if err := r.Check(r.Ctx()); err != nil {
		t.Errorf("without a problem: %v", err)
	}
	r.Delete("DEAD")
	if err := r.Check(r.Ctx()); err != nil {
		t.Errorf("without a stream for dead letters: %v", err)
	}
	queue := jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"deadletter.>"}, Retention: jetstream.WorkQueuePolicy}
	r.Create(queue)
	if err := r.Check(r.Ctx()); !errors.Is(err, ErrImpossible) || !strings.Contains(err.Error(), "DEAD") {
		t.Errorf("with a work queue: %v", err)
	}
	if _, _, err := r.Find(r.Ctx(), []Wanted{{Input: Input{1, time.Now().UnixNano()}}}); !errors.Is(err, ErrImpossible) {
		t.Errorf("lookup in a work queue: %v", err)
	}
}

// TestWithoutPermission uses a worker's user without permission to read results.
func TestWithoutPermission(t *testing.T) {
	t.Parallel()
	r := natstest.New(t, func(o *server.Options) {
		o.Users, o.NoAuthUser = []*server.User{
			{Username: "admin", Password: "admin"},
			{Username: "worker", Password: "worker", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: []string{"$JS.API.STREAM.INFO.*", "results.>"}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}},
		}, "admin"
	})
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}})
	results := New(r.JetStream(r.Connect(r.URL, nats.UserInfo("worker", "worker"))), settings(false))
	if err := results.Check(t.Context()); !errors.Is(err, ErrImpossible) || !strings.Contains(err.Error(), "docs/security.md") {
		t.Errorf("without the permission to read results: %v", err)
	}
}

func BenchmarkFind(b *testing.B) {
	at := natstest.New(b)
	at.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}})
	const n = 100_000
	now := time.Now()
	at.Publish(1, n+1, func(seq int) *nats.Msg {
		id := fmt.Sprintf("IN:%d:%d", seq, now.UnixNano())
		h := nats.Header{jetstream.MsgIDHeader: {id}, "Millrace-Stream": {"IN"}, "Millrace-Subject": {"ingest.a"}}
		return &nats.Msg{Subject: "results.a", Data: make([]byte, 1000), Header: h}
	})
	for b.Loop() {
		r := New(at.JS, settings(false))
		found, _, err := r.Find(b.Context(), []Wanted{{Input: Input{n, now.UnixNano()}}})
		if err != nil || !found[0].Done || r.read != n {
			b.Fatalf("found %v of %d read: %v", found, r.read, err)
		}
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "results/s")
}

// overflowing returns a lookup whose index has space for only one of two inputs. The results of both inputs are stored.
func overflowing(t *testing.T) (r *rig, inputs [2]uint64) {
	t.Helper()
	r, inputs = newRig(t, false), [2]uint64{7, 7 + perBlock}
	r.want("before it is stored", false, inputs[0])
	for key := uint64(1 << 32); len(r.Results.found.blocks) < maxBlocks-1; key++ {
		r.Results.found.blocks[key] = nil
	}
	for _, in := range inputs {
		r.results(in, in)
	}
	return r, inputs
}

// TestAnIndexThatOverflowedIsReadAgain shows that a full index drops results that no current lookup needs. A later
// lookup that needs them must find them again.
func TestAnIndexThatOverflowedIsReadAgain(t *testing.T) {
	t.Parallel()
	r, inputs := overflowing(t)
	for _, in := range []uint64{inputs[1], inputs[0], inputs[1]} {
		r.want("after the overflow", true, in)
	}
}

// TestALookupThatOverflowedAndFailed shows that a lookup finds results that an earlier lookup dropped. The earlier
// lookup then failed while it read another stream.
func TestALookupThatOverflowedAndFailed(t *testing.T) {
	t.Parallel()
	r, inputs := overflowing(t)
	dead := r.StreamConfig("DEAD")
	queue := dead
	queue.Retention = jetstream.WorkQueuePolicy
	r.Delete("DEAD")
	r.Create(queue)
	if _, _, err := r.Find(r.Ctx(), []Wanted{{Input: r.input(inputs[1])}}); err == nil {
		t.Fatal("a lookup in a work queue succeeds")
	}
	r.Delete("DEAD")
	r.Create(dead)
	r.want("the result that was dropped", true, inputs[0])
}
