package pull

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// shortTurn is how long the server keeps a turn for a client that sends nothing.
const shortTurn = 3 * time.Second

// pinned returns a rig whose consumer serves one client at a time.
func pinned(t *testing.T) *rig {
	return newRig(t, turn)
}

func turn(c *jetstream.ConsumerConfig) {
	c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"g"}, shortTurn
}

func inGroup() Request {
	q := asking(1)
	q.Group, q.Expires, q.Heartbeat = "g", 2*time.Second, time.Second
	return q
}

// TestThePinMovesToAnotherClient: the first client sends nothing more, so the server pins the other.
func TestThePinMovesToAnotherClient(t *testing.T) {
	t.Parallel()
	r := pinned(t)
	r.publish(0, 10, 10)
	first, second := r.open(inGroup()), r.open(inGroup())
	r.next(first)
	if first.Pin() == "" {
		t.Fatal("the first client does not know that it has the turn")
	}
	r.next(second)
	if pin := second.Pin(); pin == "" || pin == first.Pin() {
		t.Errorf("the second client's turn is %q, and the first's was %q", pin, first.Pin())
	}
}

// TestThePinIsKept: the first client takes nothing for longer than the server keeps a turn, but sends Keep.
func TestThePinIsKept(t *testing.T) {
	t.Parallel()
	r := pinned(t)
	r.publish(0, 10, 10)
	first, second := r.open(inGroup()), r.open(inGroup())
	if err := first.Keep(); err != nil {
		t.Fatalf("Keep without a turn: %v", err)
	}
	r.next(first)
	pin := first.Pin()
	over, cancel := context.WithTimeout(r.ctx, 2*shortTurn)
	defer cancel()
	go func() {
		for tick := time.NewTicker(shortTurn / 10); over.Err() == nil; <-tick.C {
			_ = first.Keep()
		}
	}()
	if m, err := second.Next(over); err == nil {
		t.Fatalf("the second client got %q", m.Data())
	}
	if groups := r.info().PriorityGroups; len(groups) != 1 || groups[0].PinnedClientID != pin {
		t.Errorf("it is the turn of %+v, want %q", groups, pin)
	}
	r.next(first)
	if first.Pin() != pin {
		t.Errorf("the first client's turn was %q and is %q", pin, first.Pin())
	}
}

// TestALostPinIsAssignedAgain: the first client still names the pin of its old turn, and the server reports that the turn is
// over.
func TestALostPinIsAssignedAgain(t *testing.T) {
	t.Parallel()
	r := pinned(t)
	r.publish(0, 10, 10)
	first := r.open(inGroup())
	r.next(first)
	lost := first.Pin()
	s, err := r.js.Stream(r.ctx, "IN")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.UnpinConsumer(r.ctx, "in", "g"); err != nil {
		t.Fatal(err)
	}
	for first.Pin() == lost {
		r.next(first)
	}
}
