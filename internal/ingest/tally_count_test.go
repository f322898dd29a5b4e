package ingest

import (
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// TestStoredCountsInputs delivers every input twice, because the first acknowledgements are lost with their consumer.
// Each input is settled twice and counted once.
func TestStoredCountsInputs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 20
	r.publish(n, document)
	for round := range 2 {
		run := r.run(hostDevice(t), streams.Options{})
		r.tally.awaitFunc(t, "settled", (round+1)*n, func() int { return r.tally.count(inflight.Published) + r.tally.count(inflight.Duplicate) })
		if err := run.drain(); err != nil {
			t.Fatal(err)
		}
		if got := r.tally.stored(); got != n {
			t.Errorf("round %d: %d inputs are stored, want %d", round, got, n)
		}
		if err := r.JS.DeleteConsumer(r.Ctx(), r.opts.Stream, r.opts.Consumer); err != nil {
			t.Fatal(err)
		}
		r.provision()
	}
	c := newTally()
	for _, at := range []int64{1, 1, 2} {
		c.hasResult(7, time.Unix(0, at))
	}
	if c.stored() != 2 {
		t.Errorf("%d inputs, want that of the first stream and that of the second with its number", c.stored())
	}
}
