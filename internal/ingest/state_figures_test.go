package ingest

import (
	"strings"
	"testing"

	"millrace/internal/ingest/natstest"
	"millrace/internal/operator/neardup"
	"millrace/internal/streams"
)

// TestFiguresOfStates compares the figures and the events of states with the results and the logs. The second worker replays the logs.
func TestFiguresOfStates(t *testing.T) {
	eachCommit(t, 2, func(t *testing.T, r *rig) {
		stateRig(t, r, 10000)
		const n = 200
		r.publishFrom(0, n, nearDuplicates)
		run := r.run(hostDevice(t), streams.Options{BatchPayloads: 64})
		if !r.awaitEnd(run) {
			t.Fatalf("the worker ended with %v", run.wait())
		}
		records, hits, logged := uint64(0), uint64(0), 0
		for _, m := range r.Stored("RESULTS") {
			if strings.HasSuffix(m.Subject, ".state") {
				logged += len(m.Data)
			} else if strings.HasPrefix(m.Subject, "results.") {
				records += uint64(strings.Count(string(m.Data), "\n"))
				hits += uint64(strings.Count(string(m.Data), `"bands"`))
			}
		}
		f := run.worker.States()
		if f.Decided != records || f.Hits != hits || hits == 0 {
			t.Errorf("%d of %d decisions are hits, want %d of %d", f.Hits, f.Decided, hits, records)
		}
		held := uint64(0)
		for _, s := range f.Owned {
			held += s.Records
		}
		if len(f.Owned) != 2 || held != records {
			t.Errorf("%d states have %d records, want 2 with %d", len(f.Owned), held, records)
		}
		run.finish()
		if after := run.worker.States(); after.Decided != records || after.Hits != hits || len(after.Owned) != 0 {
			t.Errorf("after the end, the figures are %+v", after)
		}
		r.publishFrom(n, n+20, nearDuplicates)
		r.process(hostDevice(t), streams.Options{BatchPayloads: 64})
		r.tally.mu.Lock()
		defer r.tally.mu.Unlock()
		if r.tally.logged <= logged || r.tally.replayed < logged {
			t.Errorf("%d bytes are logged and %d replayed, and the first log had %d", r.tally.logged, r.tally.replayed, logged)
		}
	})
}

// TestAPartitionWaitsForMemory has memory for the state of one of two partitions in each worker. The first worker says that the other
// partition waits, until a second worker takes it.
func TestAPartitionWaitsForMemory(t *testing.T) {
	r := exclusiveRig(t, 2)
	const n, records, batch = 40, 1000, 64
	stateRig(t, r, records)
	p := natstest.Must(neardup.ParseBlock(r.opts.State.Operator.Params(), records))(r)
	r.opts.State.Bytes = natstest.Must(neardup.Bytes(p, batch))(r) * 3 / 2
	r.publish(n, nearDuplicates)
	one := r.run(hostDevice(t), streams.Options{BatchPayloads: batch})
	r.Until("one partition waits", func() bool {
		f := one.worker.States()
		return f.Waiting == 1 && len(f.Owned) == 1
	})
	two := r.run(hostDevice(t), streams.Options{BatchPayloads: batch})
	r.awaitSettled()
	r.Until("each worker has one partition", func() bool {
		a, b := one.worker.States(), two.worker.States()
		return a.Waiting == 0 && b.Waiting == 0 && len(a.Owned) == 1 && len(b.Owned) == 1
	})
	two.finish()
	r.Until("the partition waits again", func() bool { return one.worker.States().Waiting == 1 })
	one.finish()
	r.wantVerdicts()
}
