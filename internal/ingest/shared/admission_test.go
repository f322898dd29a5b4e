package shared

import (
	"testing"

	"millrace/internal/ingest/inflight"
)

// TestWhatWasSettledIsAcknowledgedAgain redelivers a settled input. Its acknowledgement was lost, so it is acknowledged again.
func TestWhatWasSettledIsAcknowledgedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.publish(0, 1, document)
	m := r.mode()
	input := r.input()
	if !m.admission.admit(t.Context(), &input) {
		t.Fatal("a first delivery is not to be processed")
	}
	m.ends.ledger.settle(&input) // the acknowledgement was lost
	input.NumDelivered = 2
	if m.admission.admit(t.Context(), &input) {
		t.Error("what was settled is to be processed again")
	}
	r.Until("the input is acknowledged", func() bool {
		info := r.consumer(r.NC).CachedInfo()
		return info.NumPending == 0 && info.NumAckPending == 0 && info.AckFloor.Stream == 1
	})
	if n := r.counts.outcomes[inflight.Duplicate].Load(); n != 1 {
		t.Errorf("%d duplicates were told of, want 1", n)
	}
}
