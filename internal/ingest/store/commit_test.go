package store

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// overtaken is a stream that calls then directly after it stores a marker.
type overtaken struct {
	*keptMarkers
	then func()
}

func (o *overtaken) Write(ctx context.Context, way Way, expected uint64, msgs []*nats.Msg, m *Marker) (uint64, error) {
	at, err := o.keptMarkers.Write(ctx, way, expected, msgs, m)
	if then := o.then; err == nil && then != nil {
		o.then = nil
		then()
	}
	return at, err
}

// TestTwoWorkersTakeOver lets a second worker take over both chains between the two fences of the first. The first
// worker then owns neither chain.
func TestTwoWorkersTakeOver(t *testing.T) {
	t.Parallel()
	results, letters := &overtaken{keptMarkers: &keptMarkers{}}, &keptMarkers{}
	open := func(owner string) (*Chain, *Chain, error) {
		again := func(_ context.Context, _ Markers, attempts int, _ error) bool { return attempts < 3 }
		return OpenChains(t.Context(), ChainOptions{Owner: owner, Created: created, Way: Atomic, Again: again}, results, letters)
	}
	var newResults, newLetters *Chain
	results.then = func() {
		var err error
		newResults, newLetters, err = open("new")
		natstest.OK(t, err)
	}
	if _, _, err := open("old"); !errors.Is(err, ErrFenced) {
		t.Errorf("a worker that was overtaken between its fences takes over with %v, want %v", err, ErrFenced)
	}
	if _, err := newResults.Commit(t.Context(), Batch{Messages: result(1), At: position(1)}); err != nil {
		t.Errorf("the new owner can't store results: %v", err)
	}
	if err := newLetters.CommitLetters(t.Context(), result(2), []Letter{{Input: position(2), Record: WholeMessage}}, position(1)); err != nil {
		t.Errorf("the new owner can't store dead letters: %v", err)
	}
}

// TestWhatAWorkerWithoutMarkersMayHaveStored shows that inputs that were delivered to a worker without markers are
// looked up by all later owners. Inputs of an owner with markers need no lookup.
func TestWhatAWorkerWithoutMarkersMayHaveStored(t *testing.T) {
	t.Parallel()
	s := &keptMarkers{}
	for _, lease := range []struct {
		owner     string
		loose     bool   // whether a worker without markers had the partition before
		delivered uint64 // last input delivered before the lease
		commits   uint64 // input up to which the lease commits; 0 means no commit
		lookUp    uint64 // last input that is looked up
	}{
		{"first", false, 1, 3, 1}, // without a marker, all delivered inputs are uncertain
		// Inputs up to the marker are settled or belong to a restored stream.
		{"after an owner with markers", false, 9, 0, 3},
		{"after a worker without", true, 12, 5, 12},
		{"the next", false, 14, 0, 12},
		{"after a worker without that got fewer", true, 8, 13, 12},
		{"beyond them", false, 20, 0, 13},
	} {
		o := ChainOptions{Owner: lease.owner, Created: created, Way: Atomic, Start: position(0), LookUp: lease.delivered, Loose: lease.loose}
		c, _, err := OpenChains(t.Context(), o, s, nil)
		natstest.OK(t, err)
		for input := uint64(1); input <= 20; input++ {
			if got, want := c.IsCertain(position(input)), input > lease.lookUp; got != want {
				t.Errorf("%s: input %d is certain to have no result: %v, want %v", lease.owner, input, got, want)
			}
		}
		if lease.commits > 0 {
			natstest.Must(c.Commit(t.Context(), Batch{Messages: nil, At: position(lease.commits)}))(t)
		}
	}
}

// TestLettersOfInputsWithTheSameSequence shows that dead letters of two inputs with the same sequence are
// distinguished. A stream that was restored from an older copy reuses sequences.
func TestLettersOfInputsWithTheSameSequence(t *testing.T) {
	t.Parallel()
	older, newer, other := Position{7, 100}, Position{7, 200}, Position{8, 100}
	l := Letters{}.add([]Letter{{Input: newer, Record: WholeMessage}, {Input: other, Record: 9}, {Input: older, Record: 2}})
	for _, c := range []struct {
		letter Letter
		want   bool
	}{
		{Letter{Input: older, Record: 2}, true}, {Letter{Input: newer, Record: WholeMessage}, true}, {Letter{Input: other, Record: 9}, true},
		{Letter{Input: older, Record: WholeMessage}, false}, {Letter{Input: newer, Record: 2}, false}, {Letter{Input: Position{7, 150}, Record: 2}, false},
		{Letter{Input: Position{7, 150}, Record: WholeMessage}, false},
		{Letter{Input: older, Record: 1}, false}, {Letter{Input: older, Record: 3}, false}, {Letter{Input: older, Record: 10}, false}, {Letter{Input: other, Record: 1}, false},
	} {
		if got := l.Has(c.letter); got != c.want {
			t.Errorf("%+v is stored: %v, want %v", c.letter, got, c.want)
		}
	}
	var order []Position
	for _, in := range l {
		order = append(order, in.Position)
	}
	if want := []Position{older, newer, other}; !slices.Equal(order, want) {
		t.Errorf("the inputs are %v, want %v", order, want)
	}
	if left := l.above(Position{7, 150}); len(left) != 2 || left.Has(Letter{Input: older, Record: 2}) {
		t.Errorf("after a position between them, the inputs are %v", left)
	}
}

// TestLettersAreAddedToACopy shows that add returns a changed copy. A marker that could not be stored therefore has no effect.
func TestLettersAreAddedToACopy(t *testing.T) {
	t.Parallel()
	in, next := position(1), position(2)
	before := Letters{}.add([]Letter{{Input: in, Record: 0}})
	after := before.add([]Letter{{Input: in, Record: 1}, {Input: in, Record: 8}, {Input: in, Record: WholeMessage}, {Input: next, Record: 0}})
	for _, letter := range []Letter{{Input: in, Record: 1}, {Input: in, Record: 8}, {Input: in, Record: WholeMessage}, {Input: next, Record: 0}} {
		if before.Has(letter) || !after.Has(letter) {
			t.Errorf("%+v is stored before it is added: %v, and afterwards: %v", letter, before.Has(letter), after.Has(letter))
		}
	}
}

// TestLeftoversOfOneResult shows that results of other inputs on the same subject are ignored, even if their ids
// begin with the input's id.
func TestLeftoversOfOneResult(t *testing.T) {
	t.Parallel()
	s := &keptMarkers{}
	for _, id := range []string{"IN:12", "IN:12/1", "IN:3/1", "IN:1/1", "IN:1/2", "IN:4"} {
		s.stored = append(s.stored, keptMessage{subject: "results.a", header: nats.Header{jetstream.MsgIDHeader: {id}}})
	}
	l := &Leftovers{readings: readings{stream: s, behind: 1, before: uint64(len(s.stored))}, until: 12}
	for _, c := range []struct {
		input uint64
		id    string
		done  bool
		parts []string
	}{
		{1, "IN:1", false, []string{"IN:1/1", "IN:1/2"}}, {3, "IN:3", false, []string{"IN:3/1"}},
		{4, "IN:4", true, nil}, {5, "IN:5", false, nil},
		{12, "IN:12", false, []string{"IN:12/1"}}, // its last part isn't stored after the marker
		{13, "IN:1", false, nil},                  // no earlier owner had this input
	} {
		done, parts, err := l.Find(t.Context(), Position{Sequence: c.input}, "results.a", c.id)
		if err != nil || done != c.done || !slices.Equal(parts, c.parts) {
			t.Errorf("of input %d, %s: done %v, parts %q, %v; want %v, %q", c.input, c.id, done, parts, err, c.done, c.parts)
		}
	}
}

// TestTheStateOfAMarker checks that a marker without a state repeats the state of the previous marker. The caller may already have
// changed its copy for the next commit.
func TestTheStateOfAMarker(t *testing.T) {
	t.Parallel()
	s := &keptMarkers{}
	c := s.take(t, "owner")
	state := State{Spec: "spec", Records: 7, Sequence: 1, Record: 3}
	want := state
	natstest.Must(c.Commit(t.Context(), Batch{At: position(1), State: &state}))(t)
	state.Records, state.Sequence = 9, 2
	natstest.Must(c.Commit(t.Context(), Batch{At: position(2)}))(t)
	if last := natstest.Must(s.Last(t.Context()))(t); *last.State != want {
		t.Errorf("the marker describes %+v, want %+v", *last.State, want)
	}
}

// TestAnOwnerWithoutAStateDropsIt shows that an owner without a stateful operator drops the state. The state misses
// this owner's inputs, so a later owner must not use it.
func TestAnOwnerWithoutAStateDropsIt(t *testing.T) {
	t.Parallel()
	s := &keptMarkers{}
	natstest.Must(s.take(t, "with").Commit(t.Context(), Batch{At: position(1), State: &State{Spec: "spec", Records: 7}}))(t)
	if _, state := s.take(t, "without").Last(); state != nil {
		t.Errorf("the owner has the state %+v", state)
	}
	if last := natstest.Must(s.Last(t.Context()))(t); last.State != nil {
		t.Errorf("its marker describes %+v", last.State)
	}
}
