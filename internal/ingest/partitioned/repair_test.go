package partitioned

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/topology"
)

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
	l := newLeaseState(leaseOptions{}, server, nil, slog.New(slog.DiscardHandler))
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
