package partitioned

import (
	"errors"
	"testing"
)

// TestALeaseWithoutItsPinTakesNothing shows that a lease takes no input after the server has pinned another client.
// The consumer may have delivered the inputs to that client.
func TestALeaseWithoutItsPinTakesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const n = 3
	r.publish(n, document)
	pipe, open := r.heldPipeline(n)
	owner := r.run(pipe)
	t.Cleanup(open) // runs before the worker is awaited
	consumer := r.consumer(0)
	r.awaitDelivered(consumer, n)
	info, err := consumer.Info(r.Ctx())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		pin  string // pin of the lease
		err  error
		take int
	}{
		"another client is pinned": {"of an earlier turn", errPinLost, 0}, "it never had a turn": {"", errPinLost, 0}, "it is pinned": {pinOf(info), nil, n},
	} {
		l := r.idleLease()
		l.reader.intake.pinned = func() string { return c.pin }
		if err := l.reader.intake.fill(r.Ctx(), r.Ctx(), info, 0); !errors.Is(err, c.err) {
			t.Errorf("%s: the lease ends with %v, want %v", name, err, c.err)
		}
		taken := 0
		for d, ok := l.out.TryGet(); ok; d, ok = l.out.TryGet() {
			taken++
			l.host.release(&d)
		}
		if taken != c.take {
			t.Errorf("%s: it takes %d inputs, want %d", name, taken, c.take)
		}
	}
	open()
	owner.drain()
}
