package shared

import (
	"context"
	"testing"
	"testing/synctest"

	"millrace/internal/ingest/inflight"
)

// leaving is an isolated pull that holds one delivery and has no time to try it.
type leaving struct{ isolatedPull }

func (leaving) Begin(context.Context) {}

func (leaving) Play(context.Context) error { return nil }

func (leaving) Leave(unread func(inflight.Delivery)) { unread(inflight.Delivery{Sequence: 7}) }

// TestWhatCarefulPullingHasAtTheEndIsLeft shows that a source that ends gives back the deliveries of its isolated
// pull. They are then redelivered at once and not after AckWait.
func TestWhatCarefulPullingHasAtTheEndIsLeft(t *testing.T) {
	over, end := context.WithCancel(t.Context())
	end()
	var left []uint64
	src := &source{drainCtx: over, out: inflight.NewQueue(2), isolated: leaving{}, unread: func(d inflight.Delivery) { left = append(left, d.Sequence) }}
	if err := src.run(over); err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0] != 7 {
		t.Errorf("inputs %v were left, want 7", left)
	}
}

// TestQuietIsWhenNothingElseIsInFlight shows that a quarantined payload is tried while no other payload is in flight.
// No other payload can then be to blame.
func TestQuietIsWhenNothingElseIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &source{ledger: newLedger()}
		suspect, other := &inflight.Delivery{Sequence: 1}, &inflight.Delivery{Sequence: 2}
		src.ledger.take(suspect)
		src.ledger.take(other)
		quiet := make(chan error, 1)
		go func() { quiet <- src.AwaitQuiet(t.Context(), 1) }()
		synctest.Wait()
		select {
		case err := <-quiet:
			t.Fatalf("it was quiet (%v) with another input in hand", err)
		default:
		}
		src.ledger.settle(other)
		if err := <-quiet; err != nil {
			t.Error(err)
		}
	})
}

// TestASourcePassesMessagesOnWhileItStops shows that a source hands on new payloads until drainCtx ends, even after
// the end of intake.
func TestASourcePassesMessagesOnWhileItStops(t *testing.T) {
	t.Parallel()
	const n = 100
	src := &source{out: inflight.NewQueue(n), drainCtx: t.Context(), unread: func(d inflight.Delivery) { t.Errorf("sequence %d was given back", d.Sequence) }}
	for i := range uint64(n) {
		src.HandOn(inflight.Delivery{Msg: &paperMsg{}, Sequence: i + 1})
	}
	src.out.Close()
	handed := 0
	for _, ok := src.out.Get(); ok; _, ok = src.out.Get() {
		handed++
	}
	if handed != n {
		t.Errorf("%d of %d payloads were handed on", handed, n)
	}
}
