package shared

import (
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
)

// TestWhatWasSettledIsAcknowledgedAgain redelivers a settled input. Its first acknowledgement was lost, so it is
// acknowledged again.
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
	m.ends.ledger.settle(&input) // loses the acknowledgement
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

// TestWhatIsNotProcessedHoldsNoMemory covers a delete marker, and an input that is in flight or settled already.
func TestWhatIsNotProcessedHoldsNoMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.Publish(0, 1, func(int) *nats.Msg {
		return &nats.Msg{Subject: "ingest.web.0", Header: nats.Header{"Nats-Marker-Reason": {"MaxAge"}}}
	})
	r.publish(1, 2, document)
	m := r.mode()
	admit := func(name string, d inflight.Delivery, want bool) (admitted inflight.Delivery) {
		t.Helper()
		before := m.o.Pool.Memory().Used
		if !m.o.Pool.Hold(t.Context(), &d) {
			t.Fatal("no memory")
		}
		got := m.admission.admit(t.Context(), &d)
		if held := m.o.Pool.Memory().Used > before; got != want || held != want {
			t.Errorf("%s: it is processed: %v, and holds memory: %v; want %v", name, got, held, want)
		}
		return d
	}
	admit("a delete marker", r.input(), false)
	input := r.input()
	first := admit("an input", input, true)
	input.NumDelivered = 2
	admit("an input in flight", input, false)
	m.ends.ledger.settle(&first)
	admit("a settled input", input, false)
}
