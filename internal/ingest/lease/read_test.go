package lease

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
)

// delivers is a leaseServer whose consumer has delivered all inputs up to stream sequence upTo.
type delivers struct {
	leaseServer
	upTo uint64
}

func (d delivers) Info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	info, err := d.leaseServer.Info(ctx)
	if err == nil {
		info.Delivered.Stream = d.upTo
	}
	return info, err
}

// TestALeaseKnowsWhatWasDeliveredBefore shows that a lease uses the deliveries in the annotations, because a crashed
// server may have forgotten them. Their inputs may have results of workers without commit markers, so they are looked
// up.
func TestALeaseKnowsWhatWasDeliveredBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	for _, c := range []struct {
		name        string
		delivered   uint64 // as reported by the server
		annotations map[string]string
		want        results.Partition
	}{
		{"nothing", 0, nil, results.Partition{}},
		{"deliveries", 9, map[string]string{topology.MarkDelivered: "7"}, results.Partition{Delivered: 9}},
		{"deliveries that the server has forgotten", 5, map[string]string{topology.MarkDelivered: "7"}, results.Partition{Delivered: 7}},
		{"a lease without commit markers", 0, map[string]string{annotationLoose: "yes"}, results.Partition{Loose: true}},
	} {
		config := r.partitionConfig(0)
		config.Metadata = c.annotations
		r.changePartition(config)
		l := r.idleLease()
		var got results.Partition
		l.openCommits = func(_ context.Context, p results.Partition) (leaseCommits, error) {
			got = p
			return nil, nil
		}
		l.server = delivers{l.server, c.delivered}
		if err := l.partition.begin(r.Ctx(), r.Ctx(), &inflight.Delivery{}); err != nil {
			t.Fatal(err)
		}
		if got.IsStored = nil; !reflect.DeepEqual(got, c.want) {
			t.Errorf("after %s: the lease opens %+v, want %+v", c.name, got, c.want)
		}
	}
}

// foundCommits are leaseCommits with markers of earlier leases.
type foundCommits struct {
	leaseCommits
	found, beyond uint64 // 0 means no marker
}

func (f foundCommits) Found() (store.Position, bool) {
	return store.Position{Sequence: f.found}, f.found > 0
}
func (f foundCommits) Beyond() uint64 { return f.beyond }

// TestAWarningOfALossIsTrue shows that a loss is logged only without a proof that the acknowledged inputs were
// stored. Messages after the last marker are a proof.
func TestAWarningOfALossIsTrue(t *testing.T) {
	t.Parallel()
	const (
		fresh, lost, again = "has no commit marker of this partition", "more inputs are acknowledged", "acknowledged without being computed"
		n                  = 4
	)
	r := newRig(t, 1)
	r.publish(n, document)
	l := r.idleLease()
	for _, c := range []struct {
		name               string
		commits            foundCommits
		floor, acknowledge uint64 // stream and consumer sequence
		want               string // empty means no warning
	}{
		{"a new partition", foundCommits{}, 0, 0, ""},
		{"no marker", foundCommits{}, n, n, fresh},
		{"a marker that agrees", foundCommits{found: n, beyond: n}, n, n, ""},
		{"a marker of fewer inputs", foundCommits{found: n - 1, beyond: n - 1}, n, n, lost},
		{"messages behind the marker", foundCommits{found: n - 1, beyond: n}, n, n, ""},
		{"an acknowledged input that the stream never had", foundCommits{found: n - 1, beyond: n - 1}, n + 1, n, ""},
		{"a marker of more inputs", foundCommits{found: n, beyond: n}, n - 1, n - 1, again},
	} {
		log := natstest.NewLog(t)
		l.log, l.commits = log.Logger(), c.commits
		info := &jetstream.ConsumerInfo{AckFloor: jetstream.SequenceInfo{Stream: c.floor, Consumer: c.acknowledge}}
		of := results.Partition{Floor: c.floor, IsStored: l.partition.isStored}
		l.partition.describeCommits(r.Ctx(), info, &of)
		for _, text := range []string{fresh, lost, again} {
			if got := log.Has(text); got != (text == c.want) {
				t.Errorf("%s: it is logged that %q: %v", c.name, text, got)
			}
		}
		if got := of.IsBeyond(r.Ctx(), c.commits); got != (c.want == lost) {
			t.Errorf("%s: the state lacks inputs: %v", c.name, got)
		}
	}
}

// watched is a leaseServer whose consumer has the given state. It records resets.
type watched struct {
	resets
	state *jetstream.ConsumerInfo
}

func (w *watched) Info(context.Context) (*jetstream.ConsumerInfo, error) { return w.state, nil }

// TestOnlyAConsumerWithoutAnOwnerIsRepaired checks that a worker without the partition repairs its consumer only if
// no client is pinned. The owner repairs its own consumer.
func TestOnlyAConsumerWithoutAnOwnerIsRepaired(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, pinned, own string // the pinned client, and this worker's pin
		begun             bool
		repaired          bool
	}{
		{"nobody has the partition", "", "", false, true},
		{"another worker has the partition", "other", "", false, false},
		{"this worker has the partition", "own", "own", true, true},
	} {
		server := &watched{state: &jetstream.ConsumerInfo{
			AckFloor: jetstream.SequenceInfo{Consumer: 10, Stream: 4}, Delivered: jetstream.SequenceInfo{Consumer: 10, Stream: 5}, NumAckPending: 1,
			PriorityGroups: []jetstream.PriorityGroupState{{Group: topology.PriorityGroup, PinnedClientID: c.pinned}},
		}}
		l := idleState(t, server)
		l.begun = c.begun
		k := &partition{leaseState: l, pinned: func() string { return c.own }}
		err := k.idle(t.Context(), t.Context())
		if repaired := errors.Is(err, errReset) && len(server.to) == 1; repaired != c.repaired || !repaired && err != nil {
			t.Errorf("%s: reset to %d, %v; want a reset: %v", c.name, server.to, err, c.repaired)
		}
	}
}

// TestAnAcknowledgementIsRepeatedForWhatItCovers shows that a redelivered input is acknowledged again only if the
// last acknowledgement covers it. An input that is still computed is not acknowledged.
func TestAnAcknowledgementIsRepeatedForWhatItCovers(t *testing.T) {
	t.Parallel()
	sent := &sentReceipts{}
	l := idleState(t, sent)
	l.acks.begin(jetstream.SequenceInfo{Consumer: 2, Stream: 3})
	l.acks.again(t.Context(), &inflight.Delivery{Sequence: 3})
	if len(sent.all) > 0 {
		t.Errorf("an acknowledgement that was never sent is repeated: %v", sent.all)
	}
	l.acks.take(&inflight.Delivery{Sequence: 4, ConsumerSequence: 1})
	l.acks.last = sent.receipt(3, 2)
	for _, c := range []struct {
		sequence uint64
		want     string
	}{{4, "[]"}, {3, "[3/2]"}, {2, "[3/2]"}} { // the third follows the second at once
		if l.acks.again(t.Context(), &inflight.Delivery{Sequence: c.sequence}); fmt.Sprint(sent.all) != c.want {
			t.Errorf("after input %d was delivered again: sent %v, want %s", c.sequence, sent.all, c.want)
		}
	}
}

// TestALateAcknowledgementWithTheLastNumber delays an acknowledgement until after an administrator's reset. The late
// acknowledgement has the number of the consumer's last delivery, but covers all inputs except the last one. The
// server then ignores the acknowledgement of the last input, which must not wait for AckWait.
func TestALateAcknowledgementWithTheLastNumber(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	// Otherwise inputs with a result would be acknowledged at once, before the late acknowledgement.
	r.topology.ExactlyOnce = topology.Off
	const n = 10
	r.publish(n, document)
	first := r.run(r.hostPipeline())
	r.events.awaitStored(t, n)
	r.awaitSettled(n)
	first.drain()
	r.publish(1, func(int) []byte { return document(n) })
	consumer := topology.PartitionConsumer(r.topology.Consumer, 0)
	if _, err := r.JS.ResetConsumerToSequence(r.Ctx(), r.topology.Stream, consumer, 2); err != nil {
		t.Fatal(err)
	}
	pipe, open := r.heldPipeline(1024)
	t.Cleanup(open)
	second := r.run(pipe)
	r.awaitDelivered(r.consumer(0), n) // inputs 2 to 11
	late := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0", r.topology.Stream, consumer, n, n, time.Now().UnixNano())
	if err := second.o.Conns[0].Publish(late, nil); err != nil {
		t.Fatal(err)
	}
	r.Until("the server has it", func() bool {
		info, err := r.consumer(0).Info(r.Ctx())
		return err == nil && info.AckFloor.Consumer == n && info.AckFloor.Stream == n && info.NumAckPending == 1
	})
	open()
	r.awaitSettled(n + 1)
	second.drain()
	r.wantAll(n+1, document)
}

// resets is a leaseServer that records the sequences to which the consumer is reset.
type resets struct {
	leaseServer
	to []uint64
}

func (r *resets) reset(_ context.Context, sequence uint64) error {
	r.to = append(r.to, sequence)
	return nil
}

// TestARepairedConsumerContinuesBehindItsFloor shows that a repaired consumer doesn't deliver the input at its floor
// again.
func TestARepairedConsumerContinuesBehindItsFloor(t *testing.T) {
	t.Parallel()
	server := &resets{}
	l := idleState(t, server)
	if err := l.repair(t.Context(), &jetstream.ConsumerInfo{AckFloor: jetstream.SequenceInfo{Stream: 41}}); !errors.Is(err, errReset) {
		t.Errorf("the lease ends with %v, want %v", err, errReset)
	}
	if want := []uint64{42}; !slices.Equal(server.to, want) {
		t.Errorf("the consumer is reset to %d, want %d", server.to, want)
	}
}

// TestAConsumerOfAnyStartIsReset resets consumers with any start. The server accepts a sequence only for consumers
// that deliver from the beginning.
func TestAConsumerOfAnyStartIsReset(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	for _, policy := range []jetstream.DeliverPolicy{jetstream.DeliverAllPolicy, jetstream.DeliverNewPolicy, jetstream.DeliverLastPolicy} {
		c := r.partitionConfig(0)
		if err := r.JS.DeleteConsumer(r.Ctx(), r.topology.Stream, c.Durable); err != nil {
			t.Fatal(err)
		}
		c.DeliverPolicy = policy
		if _, err := r.JS.CreateConsumer(r.Ctx(), r.topology.Stream, c); err != nil {
			t.Fatal(err)
		}
		if err := r.idleLease().server.reset(r.Ctx(), 1); err != nil {
			t.Errorf("deliver policy %v: %v", policy, err)
		}
	}
}

func TestIsOverAcknowledged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		delivered, acknowledged uint64
		pending                 int
		want                    bool
	}{
		{0, 0, 0, false}, {10, 0, 10, false}, {10, 5, 5, false}, {10, 10, 0, false}, {10, 9, 8, false}, // 9 was a redelivery
		{10, 10, 1, true}, {10, 11, 0, true}, {10, 11, 1, true},
	} {
		info := &jetstream.ConsumerInfo{
			Delivered: jetstream.SequenceInfo{Consumer: c.delivered}, AckFloor: jetstream.SequenceInfo{Consumer: c.acknowledged}, NumAckPending: c.pending,
		}
		if got := isOverAcknowledged(info); got != c.want {
			t.Errorf("%d delivered, %d acknowledged, %d pending: %t, want %t", c.delivered, c.acknowledged, c.pending, got, c.want)
		}
	}
}

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
		l.partition.pinned = func() string { return c.pin }
		if err := l.partition.fill(r.Ctx(), r.Ctx(), info, 0); !errors.Is(err, c.err) {
			t.Errorf("%s: the lease ends with %v, want %v", name, err, c.err)
		}
		taken := 0
		l.out.Close()
		for d, ok := l.out.Get(); ok; d, ok = l.out.Get() {
			taken++
			l.o.Pool.Release(&d)
		}
		if taken != c.take {
			t.Errorf("%s: it takes %d inputs, want %d", name, taken, c.take)
		}
	}
	open()
	owner.drain()
}
