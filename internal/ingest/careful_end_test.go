package ingest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/ingest/inflight"
)

// settledServer is one on which nobody has anything.
type settledServer struct{ surroundings }

func (settledServer) now() time.Time { return time.Unix(1000, 0) }

func (settledServer) outstanding(context.Context) (all, redelivered int, err error) { return 0, 0, nil }

func (settledServer) quiet(context.Context, int) error { return nil }

// Suspects in hand that there is no time left to try go back, so that they come again at once and not after AckWait.
func TestSuspectsInHandAtTheEndAreLeft(t *testing.T) {
	over, end := context.WithCancel(t.Context())
	end()
	var left []uint64
	c := &careful{around: settledServer{}, levels: levels{full: 64, limit: 10}, most: 100, hand: hand{g: &inflight.Batch{}}}
	src := &source{out: inflight.NewQueue(2), careful: c, unread: func(d inflight.Delivery) { left = append(left, d.Sequence) }}
	for sequence := range uint64(2) {
		c.setAside(inflight.Delivery{Msg: &paperMsg{}, Sequence: sequence + 1, NumDelivered: 2, Level: 1})
	}
	if err := src.run(over, over); err != nil {
		t.Fatal(err)
	}
	if len(left) != 2 || left[0] != 1 || left[1] != 2 {
		t.Errorf("inputs %v were left, want 1 and 2", left)
	}
}

// A suspect is tried with nothing else in hand, so that nothing else is there to blame or to be blamed.
func TestQuietIsWhenNothingElseIsInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Worker{ledger: newLedger()}
		suspect, other := &inflight.Delivery{Sequence: 1}, &inflight.Delivery{Sequence: 2}
		w.ledger.take(suspect)
		w.ledger.take(other)
		quiet := make(chan error, 1)
		go func() { quiet <- (&suspects{w: w}).quiet(t.Context(), 1) }()
		synctest.Wait()
		select {
		case err := <-quiet:
			t.Fatalf("it was quiet (%v) with another input in hand", err)
		default:
		}
		w.ledger.settle(other)
		if err := <-quiet; err != nil {
			t.Error(err)
		}
	})
}
