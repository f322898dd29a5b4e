package pull

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestTurnsAreToldApart makes the server end a client's turn and assign it a second one. The header of every message
// claims to belong to the first turn.
func TestTurnsAreToldApart(t *testing.T) {
	t.Parallel()
	r := pinned(t, longTurn)
	r.publish(0, 1, 10)
	p := r.open(inGroup())
	first := r.next(p)
	pin := p.Pin()
	if groups := r.info().PriorityGroups; len(groups) != 1 || groups[0].PinnedClientID != pin {
		t.Fatalf("it is the turn of %+v, and the client thinks %q", groups, pin)
	}
	forged := func() {
		if err := r.NC.PublishMsg(&nats.Msg{Subject: "in.a", Data: []byte("x"), Header: nats.Header{"Nats-Pin-Id": {pin, "another"}}}); err != nil {
			t.Fatal(err)
		}
	}
	forged()
	if m := r.next(p); m.Turn() != first.Turn() || p.Pin() != pin {
		t.Errorf("a header ended turn %d: it is %d, %q", first.Turn(), m.Turn(), p.Pin())
	}
	s := r.Stream("IN")
	if err := s.UnpinConsumer(r.Ctx(), "in", "g"); err != nil {
		t.Fatal(err)
	}
	forged()
	m := r.next(p)
	if m.Turn() == first.Turn() || p.Pin() == pin {
		t.Errorf("another turn looks like the first: %d, %q", m.Turn(), p.Pin())
	}
	if groups := r.info().PriorityGroups; groups[0].PinnedClientID != p.Pin() {
		t.Errorf("it is the turn of %+v, and the client thinks %q", groups, p.Pin())
	}
}

// TestAPinThatMayBeAnothersIsNotTaken shows that a pin is unknown once its lifetime has passed unused. The server may
// then have pinned another client.
func TestAPinThatMayBeAnothersIsNotTaken(t *testing.T) {
	t.Parallel()
	r := pinned(t, longTurn)
	r.publish(0, 10, 10)
	p := r.open(inGroup())
	m := r.next(p)
	if pin, err := p.Claim(r.Ctx(), m); err != nil || pin != p.Pin() {
		t.Errorf("the pin of the turn is %q, %v; want %q", pin, err, p.Pin())
	}
	for _, b := range p.inboxes.list {
		b.fresh = b.fresh.Add(-longTurn)
	}
	if pin, err := p.turns.askPin(r.Ctx(), m.Turn()); !errors.Is(err, errPinUnknown) {
		t.Errorf("long after the request: %q, %v; want %v", pin, err, errPinUnknown)
	}
	if _, err := p.turns.askPin(r.Ctx(), m.Turn()+1); !errors.Is(err, errPinUnknown) {
		t.Errorf("for a turn that never was: %v, want %v", err, errPinUnknown)
	}
}
