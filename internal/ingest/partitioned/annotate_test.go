package partitioned

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/pull"
)

// TestTakeOverTellsADeathFromACut shows that a disconnected worker that could not end its lease is not counted as
// dead.
func TestTakeOverTellsADeathFromACut(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.publish(1, document)
	l := r.idleLease()
	for _, c := range []struct {
		name        string
		annotations map[string]string
		deaths      int
	}{
		{"nobody", nil, 0},
		{"another that died", map[string]string{annotationOwner: "another"}, 1},
		{"itself, cut off", map[string]string{annotationOwner: l.m.id, annotationAlone: "1"}, 0},
	} {
		config := r.partitionConfig(0)
		config.Metadata = c.annotations
		r.changePartition(config)
		info, err := l.consumer.Info(r.Ctx())
		if err != nil {
			t.Fatal(err)
		}
		info.Delivered.Stream = 1
		if err := l.caution.takeOver(r.Ctx(), info, l.batches.largest(), false); err != nil {
			t.Fatal(err)
		}
		if l.caution.due.Deaths != c.deaths {
			t.Errorf("after %s: %d deaths, want %d", c.name, l.caution.due.Deaths, c.deaths)
		}
		if owner := r.partitionConfig(0).Metadata[annotationOwner]; owner != l.m.id {
			t.Errorf("after %s the owner is %q, want %q", c.name, owner, l.m.id)
		}
	}
}

// TestAnAcknowledgementThatTheServerNeverGot shows that the last acknowledgement is repeated until the server has it,
// with the number of the consumer's last delivery. It is not repeated while inputs are unsettled, because a later
// acknowledgement covers more.
func TestAnAcknowledgementThatTheServerNeverGot(t *testing.T) {
	t.Parallel()
	l := newRig(t, 1).idleLease()
	sent := &sentReceipts{leaseServer: l.server}
	l.server = sent
	l.begun, l.acks.last, l.acks.upTo = true, &sentReceipt{}, 3
	l.acks.caughtUp(jetstream.SequenceInfo{Consumer: 7, Stream: 4})
	at := func(floor uint64) {
		l.reader.checker.acknowledgeAll(t.Context(), &jetstream.ConsumerInfo{
			AckFloor: jetstream.SequenceInfo{Stream: floor}, Delivered: jetstream.SequenceInfo{Consumer: 7, Stream: 4},
		})
	}
	for _, c := range []struct {
		name  string
		floor uint64
		open  int
		want  string
	}{
		{"with the acknowledgement at the server", 3, 0, "[]"},
		{"without it", 2, 0, "[3/7]"},
		{"still without it", 2, 0, "[3/7 3/7]"},
		{"without it, and with an open input", 2, 1, "[3/7 3/7]"},
	} {
		if c.open > 0 {
			l.acks.takeStored(5, 8)
		}
		if at(c.floor); fmt.Sprint(sent.all) != c.want {
			t.Errorf("%s: sent %v, want %s", c.name, sent.all, c.want)
		}
	}
}

// sentReceipts is a leaseServer that records the acknowledgements of its receipts.
type sentReceipts struct {
	leaseServer
	all []string
}

func (s *sentReceipts) receipt(sequence, number uint64) pull.AckToken {
	return &sentReceipt{s: s, name: fmt.Sprint(sequence, "/", number)}
}

type sentReceipt struct {
	pull.AckToken
	s    *sentReceipts
	name string
}

func (r *sentReceipt) Ack() error { r.s.all = append(r.s.all, r.name); return nil }
