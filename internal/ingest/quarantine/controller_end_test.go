package quarantine

import (
	"context"
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
)

// settledServer simulates a server without outstanding deliveries.
type settledServer struct{ environment }

func (settledServer) now() time.Time { return time.Unix(1000, 0) }

func (settledServer) outstanding(context.Context) (all, redelivered int, err error) { return 0, 0, nil }

func (settledServer) awaitQuiet(context.Context, int) error { return nil }

// TestSuspectsInHandAtTheEndAreLeft shows that a held set is given back if no time is left to try it. Its payloads
// are then redelivered at once and not after AckWait.
func TestSuspectsInHandAtTheEndAreLeft(t *testing.T) {
	over, end := context.WithCancel(t.Context())
	end()
	var left []uint64
	c := &Controller{around: settledServer{}, levels: Levels{Full: 64, Limit: 10}, max: 100, held: heldSet{g: &inflight.Batch{}}}
	for sequence := range uint64(2) {
		c.SetAside(inflight.Delivery{Msg: &paperMsg{}, Sequence: sequence + 1, NumDelivered: 2, Level: 1})
	}
	if err := c.Play(over); err != nil {
		t.Fatal(err)
	}
	c.Leave(func(d inflight.Delivery) { left = append(left, d.Sequence) })
	if len(left) != 2 || left[0] != 1 || left[1] != 2 {
		t.Errorf("inputs %v were left, want 1 and 2", left)
	}
}
