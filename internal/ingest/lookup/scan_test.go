package lookup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestLookupsShareAConsumer shows that many lookups use few consumers, because the server limits the consumers of a
// stream. Messages that another client takes from the consumer are read again, and so are all messages if the
// consumer is gone.
func TestLookupsShareAConsumer(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	now := time.Now()
	seq := uint64(0)
	store := func(n int) (last Input) {
		for range n {
			seq++
			r.store("results.a", fmt.Sprintf("IN:%d:%d", seq, storedAt(now, seq)), true)
		}
		return Input{seq, storedAt(now, seq)}
	}
	want := func(what string, inputs ...Input) {
		t.Helper()
		for i, f := range r.find(inputs...) {
			if !f.Done {
				t.Errorf("%s: input %d has a result that is not found", what, inputs[i].Sequence)
			}
		}
	}
	r.find(Input{1, storedAt(now, 1)})
	for range 50 {
		want("one after another", store(1))
	}
	names := r.Consumers("RESULTS")
	if len(names) != 1 {
		t.Fatalf("%d consumers after 50 lookups, want 1", len(names))
	}
	first := store(1)
	last := store(3)
	consumer := r.Consumer("RESULTS", names[0])
	if m, err := consumer.Next(); err != nil || m.Headers().Get(jetstream.MsgIDHeader) != fmt.Sprintf("IN:%d:%d", first.Sequence, first.Stored) {
		t.Fatalf("another client took %v, %v", m, err)
	}
	want("with a message lost on the way", first, last)
	for _, name := range r.Consumers("RESULTS") {
		if err := r.JS.DeleteConsumer(r.Ctx(), "RESULTS", name); err != nil {
			t.Fatal(err)
		}
	}
	want("without the consumer", store(1))
	kept, removed := store(1), store(1)
	stream := r.Stream("RESULTS")
	if err := stream.DeleteMsg(r.Ctx(), stream.CachedInfo().State.LastSeq); err != nil {
		t.Fatal(err)
	}
	want("with the last message removed", kept)
	if r.find(removed)[0].Done {
		t.Error("a result is found that was removed before it was read")
	}
}

// TestTheLimitOnConsumersIsTemporary shows that a lookup fails with advice while a stream has too many consumers.
// This failure must be temporary, or stored results would be published again.
func TestTheLimitOnConsumersIsTemporary(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	if err := r.JS.DeleteStream(r.Ctx(), "RESULTS"); err != nil { // the limit of a stream is fixed
		t.Fatal(err)
	}
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxConsumers: 1})
	if _, err := r.JS.CreateConsumer(r.Ctx(), "RESULTS", jetstream.ConsumerConfig{Durable: "reader"}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	in := Input{7, storedAt(now, 7)}
	r.store("results.a", fmt.Sprintf("IN:7:%d", in.Stored), true)
	for range 2 {
		if _, _, err := r.Find(r.Ctx(), []Wanted{{Input: in}}); err == nil || errors.Is(err, ErrImpossible) || !strings.Contains(err.Error(), "max_consumers") {
			t.Errorf("the error is %v", err)
		}
	}
	if err := r.Check(r.Ctx()); err == nil || errors.Is(err, ErrImpossible) {
		t.Errorf("a check says %v", err)
	}
	if err := r.JS.DeleteConsumer(r.Ctx(), "RESULTS", "reader"); err != nil {
		t.Fatal(err)
	}
	if !r.find(in)[0].Done {
		t.Error("a result is not found as soon as there is room for a consumer")
	}
}

// TestAStreamThatLostItsEnd simulates a crashed server that has lost the last results and reuses their sequences. The
// shared consumer has already passed them.
func TestAStreamThatLostItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	now := time.Now()
	store := func(seq uint64) Input {
		in := Input{seq, storedAt(now, seq)}
		r.store("results.a", fmt.Sprintf("IN:%d:%d", in.Sequence, in.Stored), true)
		return in
	}
	r.find(store(1))
	const beyond = 4
	consumer, err := r.consumerFrom(r.Ctx(), "RESULTS", beyond)
	if err != nil {
		t.Fatal(err)
	}
	c := &r.scanner.cursors[0]
	c.consumer, c.number, c.next = consumer.CachedInfo().Name, 0, beyond
	r.find(Input{9, storedAt(now, 9)}) // detects the loss
	for i, f := range r.find(store(2), store(3), store(4)) {
		if !f.Done {
			t.Errorf("of the results in place of the lost ones, number %d isn't found", i+1)
		}
	}
}

// TestLostResultsAreNotFound simulates a crashed server that has lost the results of inputs 7 to 9 and stored other
// messages with their sequences. An input whose result was lost must be computed again.
func TestLostResultsAreNotFound(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]int{"as many messages as before": 0, "more messages than before": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			now := time.Now()
			in := func(seq uint64) Input { return Input{seq, storedAt(now, seq)} }
			store := func(seq uint64) { r.store("results.a", fmt.Sprintf("IN:%d:%d", seq, storedAt(now, seq)), true) }
			for seq := uint64(1); seq <= 6; seq++ {
				store(seq)
			}
			if !r.find(in(1))[0].Done {
				t.Fatal("a stored result isn't found")
			}
			c := &r.scanner.cursors[0]
			c.last, c.consumer = c.last.Add(-time.Minute), "" // the messages that were read are older
			for seq := uint64(7); seq <= 9; seq++ {
				r.scanner.found.add(in(seq))
			}
			for i := range more {
				store(uint64(20 + i))
			}
			for i, f := range r.find(in(7), in(9), in(4)) {
				if want := i == 2; f.Done != want {
					t.Errorf("input %d: found %v, want %v", i, f.Done, want)
				}
			}
		})
	}
}

// TestPartsOfUnfinishedInputsAreRemembered shows that a lookup keeps the stored parts and dead letters of its inputs,
// however many entries of other inputs are stored. Otherwise they would be stored twice. The lookup must read dropped
// entries again.
func TestPartsOfUnfinishedInputsAreRemembered(t *testing.T) {
	t.Parallel()
	var u unfinished
	wanted, dropped := Input{Sequence: 7, Stored: 1}, false
	u.add("wanted", wanted, []Input{wanted})
	for i := range uint64(2*maxOthers + 1) {
		kept := u.add(fmt.Sprint(i), Input{Sequence: 8 + i, Stored: 1}, []Input{wanted})
		dropped = dropped || !kept
		if i < maxOthers-1 && dropped {
			t.Fatalf("after %d messages, some are dropped", i+2)
		}
	}
	if got := u.of(wanted); !slices.Equal(got, []string{"wanted"}) {
		t.Errorf("of the input, %q is known", got)
	}
	if n := len(u.ids); n > maxOthers || n != u.count || !dropped {
		t.Errorf("%d messages are remembered and %d counted, and %d are allowed; dropped: %v", n, u.count, maxOthers, dropped)
	}
}

// TestFindReturnsWhatIsStoredOfAnUnfinishedInput shows that later lookups don't change a returned result.
func TestFindReturnsWhatIsStoredOfAnUnfinishedInput(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.o.Part = "Part"
	now := time.Now()
	id := func(seq uint64, rest string) string { return fmt.Sprintf("IN:%d:%d%s", seq, storedAt(now, seq), rest) }
	store := func(id, part string) {
		t.Helper()
		m := &nats.Msg{Subject: "results.a", Header: nats.Header{jetstream.MsgIDHeader: {id}, "Part": {part}}}
		if _, err := r.JS.PublishMsg(r.Ctx(), m); err != nil {
			t.Fatal(err)
		}
	}
	store(id(5, "/1/0a"), "1/3")
	store(id(6, "/1/0b"), "1/2")
	store(id(6, ""), "2/2")
	r.store("deadletter.a", id(5, "#8"), true)
	r.store("deadletter.a", id(6, "#9"), true)
	five := Input{5, storedAt(now, 5)}
	found := r.find(five, Input{6, storedAt(now, 6)}, Input{7, storedAt(now, 7)})
	r.scanner.restart(now.Add(time.Hour)) // as after another lookup that could not finish
	store(id(5, "/2/0a"), "2/3")
	want := []string{id(5, "/1/0a"), id(5, "#8")}
	if found[0].Done || !slices.Equal(found[0].Partial, want) {
		t.Errorf("of input 5, %+v is found, want %q", found[0], want)
	}
	if !found[1].Done || found[1].Partial != nil || found[2].Done || found[2].Partial != nil {
		t.Errorf("of inputs 6 and 7, %+v and %+v are found, want only a result of 6", found[1], found[2])
	}
	r.scanner.restart(now.Add(-2 * time.Hour))
	if want := 3; len(r.find(five)[0].Partial) != want || len(found[0].Partial) != 2 {
		t.Errorf("%+v is found later, want %d messages; and before %+v", r.find(five), want, found[0])
	}
}
