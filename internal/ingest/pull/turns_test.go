package pull

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
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
	r.wantPin(pin)
	forged := func() {
		r.Put(&nats.Msg{Subject: "in.a", Data: []byte("x"), Header: nats.Header{"Nats-Pin-Id": {pin, "another"}}})
	}
	forged()
	if m := r.next(p); m.Turn() != first.Turn() || p.Pin() != pin {
		t.Errorf("a header ended turn %d: it is %d, %q", first.Turn(), m.Turn(), p.Pin())
	}
	natstest.OK(t, r.Stream("IN").UnpinConsumer(r.Ctx(), "in", "g"))
	forged()
	m := r.next(p)
	if m.Turn() == first.Turn() || p.Pin() == pin {
		t.Errorf("another turn looks like the first: %d, %q", m.Turn(), p.Pin())
	}
	r.wantPin(p.Pin())
}

// wantPin checks the server's pin against a client's.
func (r *rig) wantPin(pin string) {
	r.Helper()
	if groups := r.info().PriorityGroups; len(groups) != 1 || groups[0].PinnedClientID != pin {
		r.Errorf("it is the turn of %+v, and the client thinks %q", groups, pin)
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
		t.Errorf("for a turn that never existed: %v, want %v", err, errPinUnknown)
	}
}

// longTurn and shortTurn are periods for which the server keeps the turn of an idle client.
const (
	longTurn  = 2 * patience // longer than a test
	shortTurn = time.Second
)

// pinned returns a rig whose consumer serves one client at a time.
func pinned(t *testing.T, lifetime time.Duration) *rig {
	return newRig(t, func(c *jetstream.ConsumerConfig) { turn(c); c.PinnedTTL = lifetime })
}

func turn(c *jetstream.ConsumerConfig) {
	c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"g"}, longTurn
}

func inGroup() Request {
	q := asking(1)
	q.Group = "g"
	return q
}

// inShortTurns returns a request that is repeated often enough for short turns. Pull can't determine the current turn
// if its last request is older than a turn.
func inShortTurns() Request {
	q := inGroup()
	q.Expires, q.Heartbeat = shortTurn/2, shortTurn/4
	return q
}

// slow reports whether a pull with inShortTurns failed because the machine is too slow.
func slow(err error) bool { return errors.Is(err, errPinUnknown) || errors.Is(err, ErrSilent) }

// TestThePinMovesToAnotherClient shows that the server pins another client once the first client is idle.
func TestThePinMovesToAnotherClient(t *testing.T) {
	t.Parallel()
	r := pinned(t, shortTurn)
	r.publish(0, 10, 10)
	first, second := r.open(inShortTurns()), r.open(inShortTurns())
	if _, err := first.Next(r.Ctx()); err != nil && !slow(err) {
		t.Fatal(err)
	} else if err == nil && first.Pin() == "" {
		t.Fatal("the first client does not know that it has the turn")
	}
	ctx := r.Ctx()
	_, err := second.Next(ctx)
	for slow(err) { // this turn may be over too
		_, err = second.Next(ctx)
	}
	natstest.OK(t, err)
	if pin := second.Pin(); pin == "" || pin == first.Pin() {
		t.Errorf("the second client's turn is %q, and the first's was %q", pin, first.Pin())
	}
}

// TestThePinIsKept shows that Keep preserves the turn of a client that takes no message for longer than a turn. If a
// slow machine delays Keep for a whole turn, the test restarts.
func TestThePinIsKept(t *testing.T) {
	t.Parallel()
	for began := time.Now(); !kept(pinned(t, shortTurn)); {
		if time.Since(began) > patience {
			t.Fatalf("in %v this machine did not once send Keep in time", patience)
		}
	}
}

// kept reports whether the first client sent Keep in time.
func kept(r *rig) bool {
	r.publish(0, 10, 10)
	first, second := r.open(inShortTurns()), r.open(inShortTurns())
	natstest.OK(r, first.Keep()) // without a turn
	before := time.Now()         // time of a request that the server has certainly received
	if _, err := first.Next(r.Ctx()); slow(err) {
		return false
	} else if err != nil {
		r.Fatal(err)
	}
	pin := first.Pin()
	stolen := make(chan *Message, 1)
	ctx, stop := context.WithCancel(r.Ctx())
	defer stop()
	go func() {
		if m, err := second.Next(ctx); err == nil {
			stolen <- m
		}
	}()
	late := func() bool { return time.Since(before) >= shortTurn }
	const times = 20
	for range 2 * times {
		now := time.Now()
		natstest.OK(r, first.Keep())
		natstest.OK(r, r.NC.FlushTimeout(patience))
		if late() {
			return false
		}
		before = now
		select {
		case m := <-stolen:
			r.Fatalf("the second client got %q", m.Data())
		case <-time.After(shortTurn / times):
		}
	}
	groups := r.info().PriorityGroups
	_, err := first.Next(r.Ctx())
	switch {
	case late() || slow(err):
		return false
	case err != nil:
		r.Fatal(err)
	case len(groups) != 1 || groups[0].PinnedClientID != pin || first.Pin() != pin:
		r.Errorf("the first client's turn was %q and is %q, and the server's is %+v", pin, first.Pin(), groups)
	}
	return true
}

// TestALostPinIsAssignedAgain sends a request with the pin of an earlier turn. The server reports that this turn is over.
func TestALostPinIsAssignedAgain(t *testing.T) {
	t.Parallel()
	r := pinned(t, longTurn)
	r.publish(0, 10, 10)
	first := r.open(inGroup())
	r.next(first)
	lost := first.Pin()
	natstest.OK(t, r.Stream("IN").UnpinConsumer(r.Ctx(), "in", "g"))
	for first.Pin() == lost {
		r.next(first)
	}
}

// TestRequestsAreRenewedAfterAReconnection shows that requests are made again after a reconnect. The server with the pending
// requests may have been replaced without a report on them. Messages that arrived before the reconnect are taken first.
func TestRequestsAreRenewedAfterAReconnection(t *testing.T) {
	p := &Pull{
		inboxes:  inboxes{in: make(chan *nats.Msg, 1), ended: make(chan struct{})},
		requests: requests{left: 5, room: 50},
		status:   make(chan nats.Status, 1), tick: time.NewTicker(time.Hour),
	}
	q := &p.requests
	defer p.tick.Stop()
	q.live[0] = ask{number: 7, until: time.Now().Add(time.Hour)}
	p.status <- nats.CONNECTED
	if raw, err := p.wait(t.Context()); raw != nil || err != nil || !q.renew || q.live[0].number != 7 {
		t.Fatalf("wait returned %v and %v, and the requests must be repeated: %t; want nil, nil and true", raw, err, q.renew)
	}
	if raw, err := p.wait(t.Context()); raw != nil || err != nil { // no message is waiting
		t.Fatalf("wait returned %v and %v, but no message is waiting", raw, err)
	}
	if q.live != [outstanding]ask{} || q.left != 0 || q.room != 0 || q.renew {
		t.Errorf("the requests from before the reconnect still count: %+v, %d messages and %d bytes left", q.live, q.left, q.room)
	}
}
