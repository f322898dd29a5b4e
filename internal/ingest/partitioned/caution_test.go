package partitioned

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/partitioned/partition"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
)

// TestALeaseIsCautiousUpToTheLastQuarantinedPayload shows that batches are small up to the last quarantined payload,
// and then of normal size.
func TestALeaseIsCautiousUpToTheLastQuarantinedPayload(t *testing.T) {
	t.Parallel()
	l := newRig(t, 1).idleLease()
	l.caution.due = partition.Caution{Until: 10, Deaths: 1}
	large := l.batches.largest()
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
	if err := l.caution.takeOver(r.Ctx(), info, l.batches.largest(), false); err != nil {
		t.Fatal(err)
	}
	quarantined := l.caution.due.Quarantined(l.batches.largest())
	for _, c := range []struct{ came, deaths int }{{quarantined - 1, 2}, {1, 1}} {
		if err := l.caution.relax(r.Ctx(), c.came, l.batches.largest()); err != nil {
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
