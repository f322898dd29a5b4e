package ingest

import (
	"bytes"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// TestExclusiveDeadLettersOfOperatorErrors shows that a payload on which an operator fails is dead-lettered, and all
// other payloads of its partition are processed.
func TestExclusiveDeadLettersOfOperatorErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.Exclusive, r.opts.Partitions = true, 1
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}})
	r.provision()
	const n, bad = 100, 40
	payload := unfitAt(bad)
	r.publish(n, payload)
	run := r.run(pickySim(t), streams.Options{Lanes: 1, BatchPayloads: 16})
	r.tally.await(t, inflight.DeadLettered, 1)
	r.tally.awaitStored(t, n-1)
	until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	found := r.stored("results.>")
	if len(found) != n-1 || len(found[bad+1]) != 0 {
		t.Errorf("results of %d inputs, and %d of the one that no operator takes; want %d and none", len(found), len(found[bad+1]), n-1)
	}
	m := r.deadLetter("RESULTS", bad+1)
	wantHeaders(t, m.Headers(), map[string]string{results.HeaderReason: string(results.OperatorError)})
	if !bytes.Equal(m.Data(), payload(bad)) {
		t.Error("the dead letter is not the payload")
	}
	r.wantInOrder()
}
