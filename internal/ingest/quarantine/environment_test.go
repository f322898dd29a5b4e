package quarantine

import (
	"context"
	"testing"

	"millrace/internal/ingest/inflight"
)

// handed counts the deliveries that isolated pulling hands on.
type handed struct {
	Intake
	n int
}

func (h *handed) HandOn(inflight.Delivery) { h.n++ }

// TestFreshPayloadsFlowThoughItStops shows that isolated pulling hands on received new payloads even after it was
// stopped.
func TestFreshPayloadsFlowThoughItStops(t *testing.T) {
	t.Parallel()
	const n = 100
	in := &handed{}
	s := &liveEnvironment{Intake: in, drainCtx: t.Context()}
	g, items := &inflight.Batch{}, make([]int, n)
	for i := range items {
		g.Add(inflight.Delivery{Msg: &paperMsg{}, Sequence: uint64(i + 1)})
		items[i] = i
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := s.flow(stopped, g, items); err != nil {
		t.Fatal(err)
	}
	if in.n != n || len(g.Unsettled()) > 0 {
		t.Errorf("%d of %d payloads were handed on, and %d are still here", in.n, n, len(g.Unsettled()))
	}
}
