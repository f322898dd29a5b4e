package partitioned

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// idleLease is a lease on partition 0 that has not begun.
type idleLease struct {
	*lease
	m        *Mode
	consumer jetstream.Consumer
}

func (r *rig) idleLease() *idleLease {
	r.t.Helper()
	m := r.mode(r.hostPipeline())
	l, err := m.newLease(r.ctx(), 0, m.s.Conns[0], m.devices[0], r.log.Logger())
	if err != nil {
		r.t.Fatal(err)
	}
	return &idleLease{lease: l, m: m, consumer: l.server.(*consumerServer).consumer}
}

// awaitDelivered returns once the server has delivered n inputs of a partition to its owner.
func (r *rig) awaitDelivered(c jetstream.Consumer, n uint64) {
	r.t.Helper()
	until(r.t, fmt.Sprintf("%d inputs are delivered", n), func() bool {
		info, err := c.Info(r.ctx())
		return err == nil && info.Delivered.Consumer == n
	})
}

// TestAnIdleWorkerLeavesABusyOwnerAlone makes a second worker check a partition while the device of its owner is behind, as it
// does when no messages arrive.
func TestAnIdleWorkerLeavesABusyOwnerAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const n = 10
	pipe, open := r.heldPipeline(n)
	r.publish(n, document)
	owner := r.run(pipe)
	t.Cleanup(open) // runs before the cleanup that waits for the worker
	until(t, "the worker has a batch in flight", func() bool { return owner.s.Pool.InFlight() > 0 })
	idle := r.idleLease()
	r.awaitDelivered(idle.consumer, n)
	for range 3 {
		if err := idle.reader.checker.check(r.ctx(), r.ctx(), ""); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := idle.consumer.Info(r.ctx()); err != nil || c.NumAckPending != n || c.Delivered.Consumer != n {
		t.Errorf("the consumer was started again under its owner: %d unacknowledged, %d delivered, %v", c.NumAckPending, c.Delivered.Consumer, err)
	}
	open()
	r.events.awaitStored(t, n)
	owner.drain()
	r.wantAll(n, document)
	if restarts, redeliveries := r.events.disturbances(); restarts > 0 || redeliveries > 0 {
		t.Errorf("the owner began anew %d times, and got %d inputs again", restarts, redeliveries)
	}
}

// TestAnIdleWorkerStartsWhatADeadOwnerLeft is the opposite case: no client is pinned any more.
func TestAnIdleWorkerStartsWhatADeadOwnerLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const n = 10
	pipe, open := r.heldPipeline(n)
	r.publish(n, document)
	owner := r.run(pipe)
	t.Cleanup(open) // runs before the cleanup that waits for the worker
	until(t, "the worker has a batch in flight", func() bool { return owner.s.Pool.InFlight() > 0 })
	idle := r.idleLease()
	r.awaitDelivered(idle.consumer, n)
	owner.s.Conns[0].Close()
	until(t, "the server has let go of the dead owner", func() bool {
		info, err := idle.consumer.Info(r.ctx())
		return err == nil && pinOf(info) == ""
	})
	if err := idle.reader.checker.check(r.ctx(), r.ctx(), ""); err != nil {
		t.Fatal(err)
	}
	if c, err := idle.consumer.Info(r.ctx()); err != nil || c.NumAckPending != 0 || c.NumPending != n {
		t.Errorf("what the owner left would come after AckWait: %d unacknowledged, %d to deliver, %v", c.NumAckPending, c.NumPending, err)
	}
	open()
	owner.giveUp() // it can't publish anything
}

// TestAResetGoesToTheFloorThatItsSenderRead has a reset arrive late, after another worker has acknowledged everything. It must not go to
// the floor of that time: see leaseServer.reset. Everything is delivered again, and every input keeps one result.
func TestAResetGoesToTheFloorThatItsSenderRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const n = 10
	idle := r.idleLease()
	old, err := idle.server.info(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	r.publish(n, document)
	first := r.run(r.hostPipeline())
	r.events.awaitStored(t, n)
	first.drain()
	if err := idle.server.reset(r.ctx(), old); err != nil {
		t.Fatal(err)
	}
	if c, err := idle.consumer.Info(r.ctx()); err != nil || c.AckFloor.Stream != 0 || c.NumPending != n {
		t.Errorf("after a late reset the floor is %d and %d inputs are to be delivered, want 0 and %d: %v", c.AckFloor.Stream, c.NumPending, n, err)
	}
	second := r.run(r.hostPipeline())
	r.events.awaitStored(t, 2*n)
	second.drain()
	r.wantAll(n, document)
}
