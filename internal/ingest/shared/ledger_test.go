package shared

import (
	"context"
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
)

func TestLedgerKnowsInputsInFlightAndSettledOnes(t *testing.T) {
	l := newLedger()
	at := time.Unix(1000, 0)
	first := &inflight.Delivery{Sequence: 7, Stored: at, NumDelivered: 1}
	again := &inflight.Delivery{Sequence: 7, Stored: at, NumDelivered: 9}
	// A recreated stream restarts its sequences.
	other := &inflight.Delivery{Sequence: 7, Stored: at.Add(time.Hour), NumDelivered: 2}

	want := func(d *inflight.Delivery, s standing, when string) {
		t.Helper()
		if got := l.take(d); got != s {
			t.Errorf("%s: standing %d, want %d", when, got, s)
		}
	}
	want(first, unknown, "a first delivery")
	want(again, inFlight, "a second while the first is in hand")
	want(other, unknown, "of another stream's message with the sequence of one in hand")
	l.giveBack(other)
	want(first, unknown, "a first delivery after that was given back")
	l.giveBack(first)
	if !l.gaveBack(again) || l.gaveBack(other) {
		t.Error("it is not known which of two was given back")
	}
	want(again, unknown, "after it was given back")
	l.settle(again)
	want(again, done, "after it was settled")
	want(first, unknown, "a first delivery after that, by a consumer made anew")
	l.giveBack(first)
	want(other, unknown, "of another stream's message with that sequence")
	l.settle(other)
	want(other, done, "after that was settled")
}

func TestLedgerReportsWhenFewInputsAreInFlight(t *testing.T) {
	l := newLedger()
	one, two := &inflight.Delivery{Sequence: 1}, &inflight.Delivery{Sequence: 2}
	l.take(one)
	l.take(two)
	waited := make(chan error, 1)
	go func() { waited <- l.await(t.Context(), 1) }()
	l.settle(one)
	if err := <-waited; err != nil {
		t.Errorf("one is held, and waiting for that ended with %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.await(gone, 0); err == nil {
		t.Error("one is held, and waiting for none ended without an error")
	}
	l.giveBack(two)
	if err := l.await(gone, 0); err != nil {
		t.Errorf("none is held, and waiting for that ended with %v", err)
	}
}

func TestLedgerIsBounded(t *testing.T) {
	l := newLedger()
	const n = 3 * remembered
	for i := range uint64(n) {
		d := &inflight.Delivery{Sequence: i}
		l.take(d)
		l.settle(d)
	}
	if len(l.settled) != remembered || len(l.order) != remembered || len(l.held) != 0 {
		t.Errorf("%d settled, %d in order, %d held, want %d, %d, 0", len(l.settled), len(l.order), len(l.held), remembered, remembered)
	}
	if l.take(&inflight.Delivery{Sequence: n - remembered, NumDelivered: 2}) != done {
		t.Error("the oldest that should be remembered is not")
	}
	if l.take(&inflight.Delivery{Sequence: n - remembered - 1, NumDelivered: 2}) != unknown {
		t.Error("one more than should be remembered is")
	}
}
