package ingest

import (
	"testing"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/partition"
)

// Batches are small up to the last suspect, and as large as ever behind it.
func TestATenureIsCarefulUpToTheLastSuspect(t *testing.T) {
	t.Parallel()
	tn := exclusiveRig(t, 1).idleTenure()
	tn.caution = partition.Caution{Until: 10, Deaths: 1}
	f := &inflight.Batcher{}
	small := tn.caution.BatchPayloads(tn.pipe.BatchPayloads())
	tn.ackedUpTo = 9
	if careful := tn.careful(f); !careful || f.MaxRows != small {
		t.Errorf("with a suspect left: careful %t, %d payloads a batch; want so, and %d", careful, f.MaxRows, small)
	}
	tn.ackedUpTo = 10
	if careful := tn.careful(f); careful || f.MaxRows != 0 {
		t.Errorf("behind the last suspect: careful %t, %d payloads a batch; want neither", careful, f.MaxRows)
	}
}

// Once as many suspects have come through as were in a batch that was a worker's death, there is less reason for caution.
func TestATenureRelaxesWithItsSuspects(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	before := r.partitionConfig(0)
	before.Metadata[markCaution] = partition.Caution{Until: 1000, Deaths: 2}.String()
	r.changePartition(before)
	tn := r.idleTenure()
	info, err := tn.consumer.Info(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if err := tn.takeOver(r.ctx(), info); err != nil {
		t.Fatal(err)
	}
	suspects := tn.caution.Suspects(tn.pipe.BatchPayloads())
	for _, c := range []struct{ came, deaths int }{{suspects - 1, 2}, {1, 1}} {
		if err := tn.relax(r.ctx(), c.came); err != nil {
			t.Fatal(err)
		}
		marked := partition.ParseCaution(r.partitionConfig(0).Metadata[markCaution])
		if tn.caution.Deaths != c.deaths || marked.Deaths != c.deaths {
			t.Errorf("after %d suspects more it counts %d deaths, and the consumer says %d; want %d", c.came, tn.caution.Deaths, marked.Deaths, c.deaths)
		}
	}
}

// What is read from the stream has the numbers that its deliveries had, one after the other: an acknowledgement names one.
func TestInputsReadFromTheStreamAreNumberedInTurn(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	const n, taken = 3, 7
	r.publish(n, document)
	tn := r.idleTenure()
	tn.out, tn.taken, tn.floor = inflight.NewQueue(n), taken, partition.NewFloor(0)
	if err := tn.fill(r.ctx(), r.ctx(), n+1); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(n) {
		d, _ := tn.out.Get()
		meta, err := d.Msg.Receipt().Metadata()
		if err != nil {
			t.Fatal(err)
		}
		if d.Sequence != i+1 || meta.Sequence.Stream != i+1 || d.ConsumerSequence != taken+1+i || meta.Sequence.Consumer != taken+1+i {
			t.Errorf("input %d has number %d and is acknowledged as %+v, want number %d", d.Sequence, d.ConsumerSequence, meta.Sequence, taken+1+i)
		}
	}
}
