package lookup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// TestLookupsShareAConsumer shows that many lookups use few consumers, because the server limits the consumers of a stream.
// A lookup reads messages again if another client takes them from the consumer, and all messages if the consumer is gone.
func TestLookupsShareAConsumer(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.want("before it is stored", false, 1)
	for seq := uint64(1); seq <= 50; seq++ {
		r.results(seq, seq)
		r.want("one after another", true, seq)
	}
	names := r.Consumers("RESULTS")
	if len(names) != 1 {
		t.Fatalf("%d consumers after 50 lookups, want 1", len(names))
	}
	r.results(51, 54)
	if m, err := r.Consumer("RESULTS", names[0]).Next(); err != nil || m.Headers().Get(jetstream.MsgIDHeader) != r.id(51, "") {
		t.Fatalf("another client took %v, %v", m, err)
	}
	r.want("with a message lost on the way", true, 51, 54)
	for _, name := range r.Consumers("RESULTS") {
		natstest.OK(t, r.JS.DeleteConsumer(r.Ctx(), "RESULTS", name))
	}
	r.results(55, 55)
	r.want("without the consumer", true, 55)
	r.results(56, 57)
	stream := r.Stream("RESULTS")
	natstest.OK(t, stream.DeleteMsg(r.Ctx(), stream.CachedInfo().State.LastSeq))
	r.want("with the last message removed", true, 56)
	r.want("a result that was removed before it was read", false, 57)
}

// TestTheLimitOnConsumersIsTemporary shows that a lookup fails with advice while a stream has too many consumers.
// This failure must be temporary, or stored results would be published again.
func TestTheLimitOnConsumersIsTemporary(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.Delete("RESULTS") // the limit of a stream is fixed
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxConsumers: 1})
	natstest.Must(r.JS.CreateConsumer(r.Ctx(), "RESULTS", jetstream.ConsumerConfig{Durable: "reader"}))(t)
	r.results(7, 7)
	for range 2 {
		if _, _, err := r.Find(r.Ctx(), []Wanted{{Input: r.input(7)}}); err == nil || errors.Is(err, ErrImpossible) ||
			!strings.Contains(err.Error(), "max_consumers") {
			t.Errorf("the error is %v", err)
		}
	}
	if err := r.Check(r.Ctx()); err == nil || errors.Is(err, ErrImpossible) {
		t.Errorf("a check says %v", err)
	}
	natstest.OK(t, r.JS.DeleteConsumer(r.Ctx(), "RESULTS", "reader"))
	r.want("as soon as there is room for a consumer", true, 7)
}

// TestAStreamThatLostItsEnd simulates a crashed server that has lost the last results and reuses their sequences. The
// shared consumer has already passed them.
func TestAStreamThatLostItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.results(1, 1)
	r.want("before the loss", true, 1)
	const beyond = 4
	consumer := natstest.Must(r.consumer(r.Ctx(), "RESULTS", beyond))(t)
	c := &r.cursors[0]
	c.consumer, c.number, c.next = consumer.CachedInfo().Name, 0, beyond
	r.want("a lookup that detects the loss", false, 9)
	r.results(2, 4)
	r.want("in place of the lost results", true, 2, 3, 4)
}

// TestLostResultsAreNotFound simulates a crashed server that has lost the results of inputs 7 to 9 and stored other
// messages with their sequences. An input whose result was lost must be computed again.
func TestLostResultsAreNotFound(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]uint64{"as many messages as before": 0, "more messages than before": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			r.results(1, 6)
			r.want("a stored result", true, 1)
			c := &r.cursors[0]
			c.last, c.consumer = c.last.Add(-time.Minute), "" // the messages that were read are older
			for seq := uint64(7); seq <= 9; seq++ {
				r.Results.found.add(r.input(seq))
			}
			r.results(20, 19+more)
			for i, f := range r.find(r.input(7), r.input(9), r.input(4)) {
				if want := i == 2; f.Done != want {
					t.Errorf("input %d of 7, 9 and 4: found %v, want %v", i, f.Done, want)
				}
			}
		})
	}
}

// TestPartsOfUnfinishedInputsAreRemembered shows that a lookup keeps the stored parts and dead letters of its inputs, even with
// too many entries of other inputs. Otherwise a worker would store them twice. The lookup must read dropped entries again.
func TestPartsOfUnfinishedInputsAreRemembered(t *testing.T) {
	t.Parallel()
	var u unfinished
	wanted, dropped := Input{Sequence: 7, Stored: 1}, false
	u.add(Partial{ID: "wanted"}, wanted, []Input{wanted})
	for i := range uint64(2*maxOthers + 1) {
		kept := u.add(Partial{ID: fmt.Sprint(i)}, Input{Sequence: 8 + i, Stored: 1}, []Input{wanted})
		dropped = dropped || !kept
		if i < maxOthers-1 && dropped {
			t.Fatalf("after %d messages, some messages of the input are dropped", i+2)
		}
	}
	if got := u.of[wanted]; !slices.Equal(got, []Partial{{ID: "wanted"}}) {
		t.Errorf("of the input, %q is known", got)
	}
	if n := len(u.of); n > maxOthers || n != u.count || !dropped {
		t.Errorf("%d messages are remembered and %d counted, and %d are allowed; dropped: %v", n, u.count, maxOthers, dropped)
	}
}

// TestFindReturnsWhatIsStoredOfAnUnfinishedInput shows that later lookups don't change a returned result.
func TestFindReturnsWhatIsStoredOfAnUnfinishedInput(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.store("results.a", r.id(5, "/1/0a"), "Part", "1/3")
	r.store("results.a", r.id(6, "/1/0b"), "Part", "1/2")
	r.store("results.a", r.id(6, ""), "Part", "2/2")
	r.store("deadletter.a", r.id(5, "#8"), "Reason", "no_field")
	r.store("deadletter.a", r.id(6, "#9"))
	found := r.find(r.input(5), r.input(6), r.input(7))
	r.restart(r.now.Add(time.Hour)) // as after another lookup that could not finish
	r.store("results.a", r.id(5, "/2/0a"), "Part", "2/3")
	want := []Partial{{ID: r.id(5, "/1/0a")}, {r.id(5, "#8"), "no_field"}}
	if found[0].Done || !slices.Equal(found[0].Partial, want) {
		t.Errorf("of input 5, %+v is found, want %+v", found[0], want)
	}
	if !found[1].Done || found[1].Partial != nil || found[2].Done || found[2].Partial != nil {
		t.Errorf("of inputs 6 and 7, %+v and %+v are found, want only a result of 6", found[1], found[2])
	}
	r.restart(r.now.Add(-2 * time.Hour))
	if later := r.find(r.input(5))[0]; len(later.Partial) != 3 || len(found[0].Partial) != 2 {
		t.Errorf("%+v is found later, want 3 messages; and before %+v", later, found[0])
	}
	r.Results.found.unfinished.count = maxOthers // as with many other inputs
	r.store("deadletter.a", r.id(8, "#1"))
	if r.find(r.input(7)); !r.since.IsZero() {
		t.Error("the next lookup doesn't read the dropped messages again")
	}
}
