package partitioned

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/partitioned/partition"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
)

// TestALeaseIsCautiousUpToTheLastQuarantinedPayload: batches are small up to the last quarantined payload, and of normal size
// after it.
func TestALeaseIsCautiousUpToTheLastQuarantinedPayload(t *testing.T) {
	t.Parallel()
	l := newRig(t, 1).idleLease()
	l.caution.due = partition.Caution{Until: 10, Deaths: 1}
	large := l.batches.largest()
	small := l.caution.due.BatchPayloads(large)
	l.acks.upTo = 9
	if due, most := l.caution.bound(large); !due || most != small {
		t.Errorf("with a quarantined payload left: cautious %t, %d payloads per batch; want so, and %d", due, most, small)
	}
	l.acks.upTo = 10
	if due, most := l.caution.bound(large); due || most != large {
		t.Errorf("behind the last quarantined payload: cautious %t, %d payloads per batch; want not, and %d", due, most, large)
	}
}

// TestALeaseRelaxesAfterItsQuarantinedPayloads: once as many payloads have succeeded as were in a batch that killed a worker, the
// lease is less cautious.
func TestALeaseRelaxesAfterItsQuarantinedPayloads(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	before := r.partitionConfig(0)
	before.Metadata[annotationCaution] = partition.Caution{Until: 1000, Deaths: 2}.String()
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
		marked := partition.ParseCaution(r.partitionConfig(0).Metadata[annotationCaution])
		if l.caution.due.Deaths != c.deaths || marked.Deaths != c.deaths {
			t.Errorf("after %d more quarantined payloads it counts %d deaths, and the consumer says %d; want %d", c.came, l.caution.due.Deaths, marked.Deaths, c.deaths)
		}
	}
}

// TestInputsReadFromTheStreamAreNumberedInOrder: inputs that are read from the stream get consecutive consumer sequences, because the
// server takes an acknowledgement only if its number is higher than the last one's. No number is higher than the last delivery's.
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
		meta, err := d.Msg.Receipt().(*pull.Message).Metadata()
		if err != nil {
			t.Fatal(err)
		}
		want := min(acknowledged+1+i, last)
		if d.Sequence != i+1 || meta.Sequence.Stream != i+1 || d.ConsumerSequence != want || meta.Sequence.Consumer != want {
			t.Errorf("input %d has number %d and is acknowledged as %+v, want number %d", d.Sequence, d.ConsumerSequence, meta.Sequence, want)
		}
	}
}
