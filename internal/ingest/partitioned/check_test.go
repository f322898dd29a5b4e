package partitioned

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
)

// watched is a leaseServer whose consumer has the given state. It records resets.
type watched struct {
	resets
	state *jetstream.ConsumerInfo
}

func (w *watched) info(context.Context) (*jetstream.ConsumerInfo, error) { return w.state, nil }

// plainHost is a leaseHost that only acknowledges.
type plainHost struct{ leaseHost }

func (plainHost) pending(uint64)                                         {}
func (plainHost) acknowledge(_ context.Context, msg pull.AckToken) error { return msg.Ack() }

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
		l := newLeaseState(leaseOptions{}, server, plainHost{}, slog.New(slog.DiscardHandler))
		l.begun = c.begun
		k := &checker{leaseState: l, intake: &intake{leaseState: l, pinned: func() string { return c.own }}}
		err := k.check(t.Context(), t.Context())
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
	l := newLeaseState(leaseOptions{}, sent, plainHost{}, slog.New(slog.DiscardHandler))
	l.acks.begin(jetstream.SequenceInfo{Consumer: 2, Stream: 3})
	k := &checker{leaseState: l}
	k.acknowledgeAgain(t.Context(), 3)
	if len(sent.all) > 0 {
		t.Errorf("an acknowledgement that was never sent is repeated: %v", sent.all)
	}
	l.acks.take(&inflight.Delivery{Sequence: 4, ConsumerSequence: 1})
	l.acks.last = sent.receipt(3, 2)
	for _, c := range []struct {
		sequence uint64
		want     string
	}{{4, "[]"}, {3, "[3/2]"}, {2, "[3/2]"}} { // the third follows the second at once
		if k.acknowledgeAgain(t.Context(), c.sequence); fmt.Sprint(sent.all) != c.want {
			t.Errorf("after input %d was delivered again: sent %v, want %s", c.sequence, sent.all, c.want)
		}
	}
}
