package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lease/partition"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
)

// TestALeaseIsCautiousUpToTheLastQuarantinedPayload shows that batches are small up to the last quarantined payload,
// and then of normal size.
func TestALeaseIsCautiousUpToTheLastQuarantinedPayload(t *testing.T) {
	t.Parallel()
	l := newRig(t, 1).idleLease()
	l.caution.due = partition.Caution{Until: 10, Deaths: 1}
	large := l.pipe.BatchPayloads()
	small := l.caution.due.BatchPayloads(large)
	l.acks.upTo = 9
	if due, maximum := l.caution.bound(large); !due || maximum != small {
		t.Errorf("with a quarantined payload left: cautious %t, %d payloads per batch; want so, and %d", due, maximum, small)
	}
	l.acks.upTo = 10
	if due, maximum := l.caution.bound(large); due || maximum != large {
		t.Errorf("behind the last quarantined payload: cautious %t, %d payloads per batch; want not, and %d", due, maximum, large)
	}
}

// TestALeaseRelaxesAfterItsQuarantinedPayloads shows that a lease becomes less cautious and may compare payloads
// again. First as many payloads must succeed as were in a batch that killed a worker.
func TestALeaseRelaxesAfterItsQuarantinedPayloads(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	before := r.partitionConfig(0)
	before.Metadata[annotationCaution] = partition.Caution{Until: 1000, Deaths: 2}.String()
	before.Metadata[annotationBeside] = "5"
	r.changePartition(before)
	l := r.idleLease()
	info, err := l.consumer.Info(r.Ctx())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.caution.takeOver(r.Ctx(), info, l.pipe.BatchPayloads(), false); err != nil {
		t.Fatal(err)
	}
	quarantined := l.caution.due.Quarantined(l.pipe.BatchPayloads())
	for _, c := range []struct{ came, deaths int }{{quarantined - 1, 2}, {1, 1}} {
		if err := l.caution.relax(r.Ctx(), c.came, l.pipe.BatchPayloads()); err != nil {
			t.Fatal(err)
		}
		left := r.partitionConfig(0).Metadata
		marked := partition.ParseCaution(left[annotationCaution])
		if _, beside := left[annotationBeside]; beside != (c.deaths == 2) {
			t.Errorf("with %d deaths, the consumer says that a payload was compared: %v", c.deaths, beside)
		}
		if l.caution.due.Deaths != c.deaths || marked.Deaths != c.deaths {
			t.Errorf("after %d more quarantined payloads it counts %d deaths, and the consumer says %d; want %d", c.came, l.caution.due.Deaths, marked.Deaths, c.deaths)
		}
	}
}

// TestOnlyTheFirstPayloadIsCondemned shows that only the first payload is given up. It was alone on the device at
// each of the last deaths. If the acknowledgements before a later payload were lost, that one was alone only at the
// last death.
func TestOnlyTheFirstPayloadIsCondemned(t *testing.T) {
	t.Parallel()
	const floor = 3
	enough := partition.Caution{Floor: floor, Trials: 1}
	for ; !enough.GiveUp(); enough.Trials++ {
	}
	for _, c := range []struct {
		name                      string
		accused, sequence, behind uint64
		fewer                     int // number of deaths below the limit
		want                      bool
	}{
		{"the first payload", 5, 5, floor, 0, true},
		{"after one death less", 5, 5, floor, 1, false},
		{"a later payload", 5, 5, floor + 1, 0, false},
		{"another payload", 5, 6, floor, 0, false},
		{"no payload was alone", 0, 0, floor, 0, false},
	} {
		p := &precaution{accused: c.accused, due: enough}
		p.due.Trials -= c.fewer
		if got := p.condemns(c.sequence, c.behind); got != c.want {
			t.Errorf("%s: condemned %v, want %v", c.name, got, c.want)
		}
	}
}

// TestASuspectIsTheSameMessage shows that a quarantined payload is identified by sequence and storage time. A
// recreated stream reuses the sequence for another message.
func TestASuspectIsTheSameMessage(t *testing.T) {
	t.Parallel()
	stored := time.Unix(1700000000, 5)
	p := &precaution{suspect: suspect{sequence: 7, stored: stored.UnixNano()}}
	for _, c := range []struct {
		d    inflight.Delivery
		want bool
	}{
		{inflight.Delivery{Sequence: 7, Stored: stored}, true}, {inflight.Delivery{Sequence: 8, Stored: stored}, false},
		{inflight.Delivery{Sequence: 7, Stored: stored.Add(time.Nanosecond)}, false},
	} {
		if got := p.suspects(&c.d); got != c.want {
			t.Errorf("input %d, stored at %v, is the suspect: %v, want %v", c.d.Sequence, c.d.Stored, got, c.want)
		}
	}
}

// TestInputsReadFromTheStreamAreNumberedInOrder shows that inputs that are read from the stream get consecutive
// consumer sequences. The server accepts an acknowledgement only if its number exceeds the last one. No number
// exceeds that of the last delivery.
func TestInputsReadFromTheStreamAreNumberedInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const n, acknowledged, last = 4, 7, 10
	r.publish(n, document)
	l := r.idleLease()
	l.acks.begin(jetstream.SequenceInfo{Consumer: acknowledged})
	info := &jetstream.ConsumerInfo{
		Delivered:      jetstream.SequenceInfo{Consumer: last, Stream: n},
		PriorityGroups: []jetstream.PriorityGroupState{{Group: topology.PriorityGroup, PinnedClientID: "pin"}},
	}
	l.reader.intake.pinned = func() string { return "pin" }
	if err := l.reader.intake.fill(r.Ctx(), r.Ctx(), info, 0); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(n) {
		d, _ := l.out.Get()
		meta, err := d.Msg.AckToken().(*pull.Message).Metadata()
		if err != nil {
			t.Fatal(err)
		}
		want := min(acknowledged+1+i, last)
		if d.Sequence != i+1 || meta.Sequence.Stream != i+1 || d.ConsumerSequence != want || meta.Sequence.Consumer != want {
			t.Errorf("input %d has number %d and is acknowledged as %+v, want number %d", d.Sequence, d.ConsumerSequence, meta.Sequence, want)
		}
	}
}

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
		if err := l.caution.takeOver(r.Ctx(), info, l.pipe.BatchPayloads(), false); err != nil {
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
