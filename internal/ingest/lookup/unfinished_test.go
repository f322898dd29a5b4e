package lookup

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

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
