package broker

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// shaped creates a server with an input stream of that shape, which contains l.
func shaped(t *testing.T, of shape, l load) *server {
	t.Helper()
	s := newTestServer(t)
	if err := s.recreate(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	if err := s.fill(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPartitionsAreEven checks that each partition has a consumer and the same number of inputs. Only the consumers for
// exclusive delivery are pinned to one client.
func TestPartitionsAreEven(t *testing.T) {
	const each = 5
	for of, want := range map[shape]jetstream.PriorityPolicy{pinned: jetstream.PriorityPolicyPinned, partitioned: jetstream.PriorityPolicyNone} {
		s := shaped(t, of, load{each * partitions, unframed{7, 10}})
		inputs, err := s.inputs(t.Context(), each*partitions)
		if err != nil {
			t.Fatal(err)
		}
		if len(inputs) != partitions {
			t.Errorf("shape %d: %d consumers, want %d", of, len(inputs), partitions)
		}
		for name, n := range inputs {
			if n != each {
				t.Errorf("shape %d: consumer %s has %d inputs, want %d", of, name, n, each)
			}
			c, err := s.js.Consumer(t.Context(), s.in, name)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.CachedInfo().Config; got.PriorityPolicy != want || got.AckPolicy != jetstream.AckAllPolicy {
				t.Errorf("shape %d: consumer %s has priority policy %v and ack policy %v", of, name, got.PriorityPolicy, got.AckPolicy)
			}
		}
	}
}

func TestPartitionIsTakenOffTheSubject(t *testing.T) {
	for _, stored := range []string{subject(3), "0." + subject(3), "12." + subject(3)} {
		if got := published(stored); got != subject(3) {
			t.Errorf("%q was published as %q, want %q", stored, got, subject(3))
		}
	}
}

// TestClockStartsBeforeTheFirstDelivery checks that the clock starts before the first delivery. The start is known only
// after that delivery.
func TestClockStartsBeforeTheFirstDelivery(t *testing.T) {
	s := shaped(t, whole, load{3, unframed{7, 10}})
	consumers, err := s.consumers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	begun, g := now(), newErrGroup(t.Context())
	var last moment
	g.start(func(ctx context.Context) (err error) {
		last, err = s.beforeFirstDelivery(ctx, begun)
		return err
	})
	if _, err := consumers[0].Next(); err != nil {
		t.Fatal(err)
	}
	if err := g.wait(); err != nil {
		t.Fatal(err)
	}
	info, err := consumers[0].Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last.at.Before(begun.at) || last.at.After(*info.Delivered.Last) {
		t.Errorf("the clock starts at %v, which is not from %v to the first delivery at %v", last.at, begun.at, info.Delivered.Last)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.beforeFirstDelivery(ctx, begun); err == nil {
		t.Error("no error though the context has ended")
	}
}
