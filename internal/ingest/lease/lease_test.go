package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// idleLease is a lease on partition 0 that has not begun.
type idleLease struct {
	*lease
	m        *Exclusive
	consumer jetstream.Consumer
}

func (r *rig) idleLease() *idleLease {
	r.Helper()
	m := r.mode(r.hostPipeline())
	l, err := m.newLease(r.Ctx(), 0, m.o.Conns[0], m.o.Devices.all[0], r.Log.Logger())
	if err != nil {
		r.Fatal(err)
	}
	return &idleLease{lease: l, m: m, consumer: l.server.(*consumerServer).consumer}
}

// awaitDelivered returns once the server has delivered n inputs of a partition to its owner.
func (r *rig) awaitDelivered(c jetstream.Consumer, n uint64) {
	r.Helper()
	r.Until(fmt.Sprintf("%d inputs are delivered", n), func() bool {
		info, err := c.Info(r.Ctx())
		return err == nil && info.Delivered.Consumer == n
	})
}

// awaitSettled returns once all inputs of partition 0 up to sequence upTo are acknowledged.
func (r *rig) awaitSettled(upTo uint64) {
	r.Helper()
	consumer := r.consumer(0)
	r.Until(fmt.Sprintf("input %d is acknowledged", upTo), func() bool {
		info, err := consumer.Info(r.Ctx())
		return err == nil && info.AckFloor.Stream == upTo && info.NumAckPending == 0
	})
}

// TestABatchHasInputsOfManyPartitions holds the device while the inputs of eight partitions arrive. A batch then has inputs of several
// partitions, and each partition stores its own results.
func TestABatchHasInputsOfManyPartitions(t *testing.T) {
	t.Parallel()
	const partitions, n, size = 8, 400, 100
	payload := someBytes(size)
	r := newRig(t, partitions)
	pipe, open := r.heldPipeline(1024)
	r.Publish(0, n, func(i int) *nats.Msg { return &nats.Msg{Subject: fmt.Sprintf("ingest.many.%d", i), Data: payload(i)} })
	worker := r.run(pipe)
	t.Cleanup(open)                                   // runs before the worker is awaited
	least := worker.o.Pool.DeliveryCost(size, 0, nil) // the subjects add to it
	r.Until("the worker holds almost all inputs", func() bool { return worker.o.Pool.Memory().Used >= n*least })
	open()
	r.events.awaitStored(t, n)
	worker.drain()
	r.wantAll(n, payload)
	if r.events.parts < 2 {
		t.Error("no batch has inputs of several partitions")
	}
}

// TestAnIdleWorkerLeavesABusyOwnerAlone makes an idle second worker check a partition while its owner's device is
// slow.
func TestAnIdleWorkerLeavesABusyOwnerAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const n = 10
	pipe, open := r.heldPipeline(n)
	r.publish(n, document)
	owner := r.run(pipe)
	t.Cleanup(open) // runs before the worker is awaited
	r.Until("the worker has a batch in flight", func() bool { return owner.o.Pool.InFlight() > 0 })
	idle := r.idleLease()
	r.awaitDelivered(idle.consumer, n)
	for range 3 {
		if err := idle.partition.idle(r.Ctx(), r.Ctx()); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := idle.consumer.Info(r.Ctx()); err != nil || c.NumAckPending != n || c.Delivered.Consumer != n {
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

// TestAnIdleWorkerTakesWhatADeadOwnerLeft makes an idle worker check a partition without a pinned client. Its inputs
// are too many to read singly. No input waits for AckWait.
func TestAnIdleWorkerTakesWhatADeadOwnerLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const n = 5 * readSingly
	pipe, open := r.heldPipeline(n)
	r.publish(n, document)
	owner := r.run(pipe)
	t.Cleanup(open) // runs before the worker is awaited
	consumer := r.consumer(0)
	r.awaitDelivered(consumer, n)
	owner.o.Conns[0].Close()
	next := r.run(r.hostPipeline())
	r.events.awaitStored(t, n)
	next.drain()
	r.wantAll(n, document)
	if c, err := consumer.Info(r.Ctx()); err != nil || c.NumAckPending != 0 || c.AckFloor.Stream != n {
		t.Errorf("%d inputs are unacknowledged, and the floor is %d, want %d: %v", c.NumAckPending, c.AckFloor.Stream, n, err)
	}
	open()
	owner.giveUp() // it can't publish anything
}

// TestAConsumerThatAnAdministratorReset shows that every input keeps one result after a reset, although the next
// owner computes it again. The reset spares the first input. nats-server 2.15.2 reads the state of a consumer without
// deliveries from its file, and a reset to the beginning may skip writing that file.
func TestAConsumerThatAnAdministratorReset(t *testing.T) {
	t.Parallel()
	const n = 10
	for _, c := range []struct {
		name     string
		owned    bool // whether the partition has an owner during the reset
		computed int  // minimum number of published results
	}{{"under its owner", true, n + 1}, {"between two owners", false, 2 * n}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 1)
			r.publish(n, document)
			owner := r.run(r.hostPipeline())
			r.events.awaitStored(t, n)
			r.awaitSettled(n)
			if !c.owned {
				owner.drain()
			}
			if _, err := r.JS.ResetConsumerToSequence(r.Ctx(), r.topology.Stream, topology.PartitionConsumer(r.topology.Consumer, 0), 2); err != nil {
				t.Fatal(err)
			}
			if !c.owned {
				owner = r.run(r.hostPipeline())
			}
			r.publish(1, func(int) []byte { return document(n) })
			r.events.awaitStored(t, c.computed)
			r.awaitSettled(n + 1)
			owner.drain()
			r.wantAll(n+1, document)
		})
	}
}

// TestAConsumerThatAnAdministratorResetUnderItsOwner resets a consumer while it has an owner. The owner's
// acknowledgements then have higher numbers than the consumer's deliveries, and the server accepts no lower ones.
func TestAConsumerThatAnAdministratorResetUnderItsOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const n = 50
	r.publish(n, document)
	first := r.run(r.hostPipeline())
	r.events.awaitStored(t, n)
	consumer := r.consumer(0)
	r.awaitSettled(n)
	first.drain()
	pipe, open := r.heldPipeline(1024)
	t.Cleanup(open)
	r.publish(10, func(i int) []byte { return document(n + i) })
	second := r.run(pipe)
	r.Until("the worker has a batch in flight", func() bool { return second.o.Pool.InFlight() > 0 })
	r.awaitDelivered(consumer, n+10)
	if _, err := r.JS.ResetConsumer(r.Ctx(), r.topology.Stream, topology.PartitionConsumer(r.topology.Consumer, 0)); err != nil {
		t.Fatal(err)
	}
	r.awaitDelivered(consumer, 10)
	open()
	for i := range 3 { // one after another
		r.publish(1, func(int) []byte { return document(n + 10 + i) })
		r.awaitSettled(uint64(n + 11 + i))
	}
	second.drain()
	r.wantAll(n+13, document)
}

// TestAnUnreadableStreamIsNotTakenForAnEmptyOne uses a server that finds no message of a partition although it has
// delivered some. The lease ends instead of acknowledging later inputs.
func TestAnUnreadableStreamIsNotTakenForAnEmptyOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.publish(3, document)
	l := r.idleLease()
	for _, c := range []struct {
		name     string
		from, to uint64
		fails    bool
	}{{"with messages in between", 0, 4, true}, {"at the end", 3, 4, false}} {
		stored := &storedInputs{server: unreadable{l.server}, stream: r.topology.Stream, subjects: r.topology.Subjects}
		failed := false
		for raw, err := range stored.between(r.Ctx(), c.from, c.to) {
			if raw != nil {
				t.Fatalf("%s: read input %d", c.name, raw.Sequence)
			}
			failed = err != nil
		}
		if failed != c.fails {
			t.Errorf("%s: failed %t, want %t", c.name, failed, c.fails)
		}
	}
}

type unreadable struct{ leaseServer }

func (u unreadable) reader() leaseReader { return unreadableReader{u.leaseServer.reader()} }

type unreadableReader struct{ leaseReader }

func (unreadableReader) read(context.Context, uint64) (*jetstream.RawStreamMsg, error) {
	return nil, nil
}

// TestInputsAreReadSinglyAndInBulk shows that a reader returns every message of its partition once, in order, from
// any sequence on. It returns no message after the last one, and finds messages that are stored later.
func TestInputsAreReadSinglyAndInBulk(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	const n = 3000
	for i := range n {
		size := i * 997 % 5000
		if i%500 == 0 {
			size = 900 << 10 // few of them fit into one request
		}
		if _, err := r.JS.PublishAsync(fmt.Sprint("ingest.", i%17), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	<-r.JS.PublishAsyncComplete()
	m, seen := r.mode(r.hostPipeline()), 0
	for p := range 3 {
		l, err := m.newLease(r.Ctx(), p, m.o.Conns[0], m.o.Devices.all[0], r.Log.Logger())
		if err != nil {
			t.Fatal(err)
		}
		want, err := r.consumer(p).Info(r.Ctx())
		if err != nil {
			t.Fatal(err)
		}
		reader, last, read, bulk := l.server.reader(), uint64(0), uint64(0), false
		for {
			raw, err := reader.read(r.Ctx(), last+1)
			if err != nil {
				t.Fatal(err)
			}
			if raw == nil {
				break
			}
			if raw.Sequence <= last || !strings.HasPrefix(raw.Subject, fmt.Sprint(p, ".ingest.")) {
				t.Fatalf("after sequence %d of partition %d comes %d on %q", last, p, raw.Sequence, raw.Subject)
			}
			if i := int(raw.Sequence - 1); i%500 != 0 && len(raw.Data) != i*997%5000 {
				t.Fatalf("input %d has %d bytes", i, len(raw.Data))
			}
			last, read = raw.Sequence, read+1
			bulk = bulk || reader.(*streamReader).bulk != ""
		}
		if read != want.NumPending {
			t.Errorf("read %d messages of partition %d, want %d", read, p, want.NumPending)
		}
		if read > readSingly && !bulk {
			t.Errorf("read %d messages of partition %d singly", read, p)
		}
		seen += int(read)
		if raw, err := reader.read(r.Ctx(), 1); err != nil || raw == nil || raw.Sequence > last {
			t.Errorf("from the start again comes %v, %v", raw, err)
		}
	}
	if seen != n {
		t.Errorf("read %d messages, want %d", seen, n)
	}
}

type endedServer struct {
	leaseServer
	state    jetstream.ConsumerInfo
	unpinned bool
}

func (s *endedServer) flush(context.Context) error                           { return nil }
func (s *endedServer) unpin(context.Context) error                           { s.unpinned = true; return nil }
func (s *endedServer) Info(context.Context) (*jetstream.ConsumerInfo, error) { return &s.state, nil }
func (s *endedServer) Annotate(_ context.Context, _ jetstream.ConsumerConfig, metadata map[string]string) error {
	s.state.Config.Metadata = metadata
	return nil
}

type ownPull struct{ leasePull }

func (ownPull) Pin() string { return "own" }

// noOwner is a leaseOwner that ignores all events.
type noOwner struct{}

func (noOwner) began() {}
func (noOwner) ended() {}

type lostDevice struct {
	leaseDevice
	err      error
	operator string // operator to blame
}

func (d lostDevice) lost() error { return d.err }
func (d lostDevice) fault() (inflight.OperatorFault, bool) {
	return inflight.OperatorFault{Operator: d.operator, Fault: inflight.Faults()[0], At: time.Unix(1, 0)}, d.operator != ""
}

// idleState returns the state of a lease that has only a server.
func idleState(t *testing.T, server leaseServer) *leaseState {
	t.Helper()
	return newLeaseState(leaseState{inputs: inputs{o: poolOptions(t), server: server, log: slog.New(slog.DiscardHandler)}, owner: noOwner{}})
}

// poolOptions returns Options that have only a pool.
func poolOptions(t *testing.T) *Options {
	t.Helper()
	lab := newModelLab(t)
	w := memory.Worker{Messages: memory.Messages{Format: operator.Binary, Operators: lab.plain}}
	return &Options{Devices: NewDevices(DeviceOptions{Pool: natstest.Must(inflight.NewPool([]*streams.Pipeline{lab.devices[0].pipe}, w))(t)})}
}

// TestWhatALeaseLeaves checks the annotations after a lease. A proper end leaves none. After a loss of the device the
// next lease is cautious. If a kernel lost the device, the annotations also name the payload that was on it.
func TestWhatALeaseLeaves(t *testing.T) {
	t.Parallel()
	const own = "own-id"
	const deathInComparison = "a proper end behind a death in a comparison"
	all := []string{annotationAlone, annotationBeside, annotationOwner}
	for name, c := range map[string]struct {
		device lostDevice
		want   []string // annotations that stay
	}{
		"a proper end":              {lostDevice{}, nil},
		deathInComparison:           {lostDevice{}, []string{annotationBeside}},
		"another loss":              {lostDevice{err: errors.New("the driver is gone")}, []string{annotationOwner}},
		"a kernel":                  {lostDevice{err: device.ErrKernelFault}, all},
		"a kernel that is to blame": {lostDevice{err: device.ErrKernelFault, operator: "crc32c"}, append([]string{annotationBlamed, inflight.FaultNote}, all...)},
	} {
		server := &endedServer{state: jetstream.ConsumerInfo{
			Config:         jetstream.ConsumerConfig{Metadata: map[string]string{annotationOwner: own, annotationAlone: "5", annotationBeside: "5"}},
			PriorityGroups: []jetstream.PriorityGroupState{{Group: topology.PriorityGroup, PinnedClientID: "own"}},
		}}
		l := newLease(leaseState{
			inputs: inputs{o: poolOptions(t), server: server, log: slog.New(slog.DiscardHandler)}, id: own, device: c.device, owner: noOwner{},
		})
		l.begun, l.partition.pulled, l.caution.comparing = true, ownPull{}, name == deathInComparison
		l.end(t.Context())
		left := server.state.Config.Metadata
		delete(left, topology.MarkDelivered)
		if got := slices.Sorted(maps.Keys(left)); !slices.Equal(got, slices.Sorted(slices.Values(c.want))) {
			t.Errorf("after %s: %v stay, want %v", name, got, c.want)
		}
		if !server.unpinned {
			t.Errorf("after %s: the partition isn't given up", name)
		}
	}
}
