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

// rig has a server with streams RESULTS and DEAD, and a lookup in both.
type rig struct {
	*natstest.Rig
	*Results
}

func newRig(t *testing.T, bySubject bool) *rig {
	t.Helper()
	r := &rig{Rig: natstest.New(t)}
	for name, subjects := range map[string]string{"RESULTS": "results.>", "DEAD": "deadletter.>"} {
		r.Create(jetstream.StreamConfig{Name: name, Subjects: []string{subjects}})
	}
	r.Results = New(r.JS, settings(bySubject))
	return r
}

func settings(bySubject bool) Options {
	return Options{Input: "IN", Streams: []string{"RESULTS", "DEAD"}, BySubject: bySubject, Deliveries: "Late", Log: slog.New(slog.DiscardHandler)}
}

// storedAt returns the time at which the input with a sequence was stored, in nanoseconds. There is one input per
// second, and input 10000 is stored now.
func storedAt(now time.Time, sequence uint64) int64 {
	return now.Add(-time.Duration(10000-sequence) * time.Second).UnixNano()
}

func (r *rig) store(subject, id string, late bool) {
	r.Helper()
	m := &nats.Msg{Subject: subject, Header: nats.Header{jetstream.MsgIDHeader: {id}}}
	if late {
		m.Header.Set("Late", "2")
	}
	if _, err := r.JS.PublishMsg(r.Ctx(), m); err != nil {
		r.Fatal(err)
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
	if err != nil {
		r.Fatal(err)
	}
	if began.Before(before) || began.After(time.Now()) {
		r.Errorf("the lookup began at %v, and was asked for at %v", began, before)
	}
	return found
}

func TestEachMessageIsReadOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	now := time.Now()
	id := func(seq uint64) string { return fmt.Sprintf("IN:%d:%d", seq, storedAt(now, seq)) }
	const n = 300
	for seq := uint64(1); seq <= n; seq++ {
		if seq%3 > 0 {
			r.store("results.a", id(seq), true)
		}
	}
	r.store("deadletter.a", id(3)+":too_large", false)
	for again := range 3 {
		for seq := uint64(1); seq <= n; seq++ {
			want := seq%3 > 0 || seq == 3 || again > 0 && seq == 6
			if got := r.find(Input{seq, storedAt(now, seq)})[0].Done; got != want {
				t.Errorf("input %d: found %v, want %v", seq, got, want)
			}
		}
		if again == 0 {
			r.store("results.a", id(6), true)
		}
	}
	if want := n*2/3 + 2; r.scanner.read != want {
		t.Errorf("%d messages were read, want each of %d once", r.scanner.read, want)
	}
}

// TestAStreamThatIsMadeAgain shows that results in a recreated stream are found, although their sequences were
// already read in the previous one. Results of the previous stream are no longer found.
func TestAStreamThatIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	now := time.Now()
	is := func(seq uint64, want bool) {
		t.Helper()
		if got := r.find(Input{seq, storedAt(now, seq)})[0].Done; got != want {
			t.Errorf("input %d: found %v, want %v", seq, got, want)
		}
	}
	for _, end := range []uint64{3, 5} {
		config := r.StreamConfig("RESULTS")
		if err := r.Stream("RESULTS").Purge(r.Ctx()); err != nil { // a server may keep a deleted stream's files for its successor
			t.Fatal(err)
		}
		r.Delete("RESULTS")
		is(3, false)
		r.Create(config)
		for seq := end - 2; seq <= end; seq++ {
			r.store("results.a", fmt.Sprintf("IN:%d:%d", seq, storedAt(now, seq)), true)
		}
		is(end, true)
		is(2, end == 3)
	}
}

// TestLongHeadersAreReadInParts shows that the bytes of a request are limited. Results have the headers of their
// inputs, which may be long.
func TestLongHeadersAreReadInParts(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	now := time.Now()
	const n = 200
	for seq := uint64(1); seq <= n; seq++ {
		m := &nats.Msg{Subject: "results.a", Header: nats.Header{
			jetstream.MsgIDHeader: {fmt.Sprintf("IN:%d:%d", seq, now.UnixNano())}, "Much": {strings.Repeat("x", 60<<10)}}}
		if _, err := r.JS.PublishMsg(r.Ctx(), m); err != nil {
			t.Fatal(err)
		}
	}
	if n*60<<10 < 2*bytesAtOnce {
		t.Fatal("one request brings all")
	}
	if !r.find(Input{n, now.UnixNano()})[0].Done || r.scanner.read != n {
		t.Errorf("%d of %d messages were read", r.scanner.read, n)
	}
}

func TestWhichIDsAreOfAnInput(t *testing.T) {
	t.Parallel()
	const stored = 1700000000123456789
	// Each pair states whether a result with this id is found for the original input 7, and for an input that reuses
	// its sequence.
	for id, want := range map[string][2]bool{
		"IN:7:1700000000123456789":              {true, false},
		"IN:7:1700000000123456789:max_deliver":  {true, false},
		"IN:7:1700000000123456788":              {false, false},
		"IN:7":                                  {false, false}, // of another program
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
		id        string
		want      bool // whether the bound is later than the input itself
	}{
		{"in order", false, false, "IN:%d:%d", true},
		{"in order by subject", true, false, "IN:%d:%d", true},
		{"all late", false, true, "IN:%d:%d", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.bySubject)
			now := time.Now()
			for seq := uint64(1); seq <= 200; seq++ {
				subject := "results.a"
				if c.bySubject && seq%2 == 0 {
					subject = "results.b" // in another partition, which is ahead
				}
				id := fmt.Sprintf(c.id, seq, storedAt(now, seq))
				if i := strings.Index(id, "%!(EXTRA"); i >= 0 {
					id = id[:i]
				}
				r.store(subject, id, c.late)
			}
			in := Wanted{Input: Input{150, storedAt(now, 150)}, Subject: "results.a"}
			oldest := time.Unix(0, in.Stored)
			bound := r.bound(r.Ctx(), []Wanted{in, {Input: Input{160, storedAt(now, 160)}, Subject: "results.b"}}, oldest)
			if latest := time.Now().Add(-2*time.Minute - slack); bound.After(latest) {
				t.Errorf("the bound is %v, later than what is known", bound)
			} else if got := bound.After(oldest.Add(time.Minute)); got != c.want {
				t.Errorf("the bound is %v after the input was stored; better than that: %v, want %v", bound.Sub(oldest), got, c.want)
			}
		})
	}
}

// TestNoBoundByAnotherSubject shows that results of another subject don't change the bound of an input whose subject
// has none.
func TestNoBoundByAnotherSubject(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	now := time.Now()
	r.store("results.b", fmt.Sprintf("IN:1:%d", storedAt(now, 1)), false)
	in := Wanted{Input: Input{2, storedAt(now, 2)}, Subject: "results.a"}
	if oldest := time.Unix(0, in.Stored); !r.bound(r.Ctx(), []Wanted{in}, oldest).Equal(oldest) {
		t.Error("a result of another partition gives a bound")
	}
}

func TestWhereNothingCanBeLookedUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	if err := r.Check(r.Ctx()); err != nil {
		t.Errorf("all is well: %v", err)
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
		t.Errorf("looking in a work queue: %v", err)
	}
}

// TestWithoutPermission uses a worker's user without permission to read results.
func TestWithoutPermission(t *testing.T) {
	t.Parallel()
	r := natstest.New(t, func(o *server.Options) {
		o.Users, o.NoAuthUser = []*server.User{
			{Username: "admin", Password: "admin"},
			{Username: "worker", Password: "worker", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{"$JS.API.STREAM.INFO.*", "results.>"}}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}}}},
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
		return &nats.Msg{Subject: "results.a", Data: make([]byte, 1000), Header: nats.Header{
			jetstream.MsgIDHeader: {fmt.Sprintf("IN:%d:%d", seq, now.UnixNano())}, "Millrace-Stream": {"IN"}, "Millrace-Subject": {"ingest.a"}}}
	})
	for b.Loop() {
		r := New(at.JS, settings(false))
		found, _, err := r.Find(b.Context(), []Wanted{{Input: Input{n, now.UnixNano()}}})
		if err != nil || !found[0].Done || r.scanner.read != n {
			b.Fatalf("found %v of %d read: %v", found, r.scanner.read, err)
		}
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "results/s")
}

// overflowing returns a lookup whose index has space for only one of two inputs. The results of both inputs are
// stored.
func overflowing(t *testing.T) (r *rig, inputs [2]Input) {
	t.Helper()
	r = newRig(t, false)
	now := time.Now()
	inputs = [2]Input{{7, storedAt(now, 7)}, {7 + perBlock, storedAt(now, 7+perBlock)}}
	r.find(inputs[0])
	for key := uint64(1 << 32); len(r.scanner.found.blocks) < maxBlocks-1; key++ {
		r.scanner.found.blocks[key] = nil
	}
	for _, in := range inputs {
		r.store("results.a", fmt.Sprintf("IN:%d:%d", in.Sequence, in.Stored), true)
	}
	return r, inputs
}

// TestAnIndexThatOverflowedIsReadAgain shows that a full index drops results that no current lookup needs. A later
// lookup that needs them must find them again.
func TestAnIndexThatOverflowedIsReadAgain(t *testing.T) {
	t.Parallel()
	r, inputs := overflowing(t)
	for _, in := range []Input{inputs[1], inputs[0], inputs[1]} {
		if !r.find(in)[0].Done {
			t.Errorf("the result of input %d isn't found", in.Sequence)
		}
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
	if _, _, err := r.Find(r.Ctx(), []Wanted{{Input: inputs[1]}}); err == nil {
		t.Fatal("a lookup in a work queue succeeds")
	}
	r.Delete("DEAD")
	r.Create(dead)
	if !r.find(inputs[0])[0].Done {
		t.Error("the result that was dropped isn't found")
	}
}
