package pause

import (
	"testing"
	"time"
)

func TestAStallIsNoticedByWhoeverLooksFirst(t *testing.T) {
	var w Watch
	start := time.Now()
	at := start.Add
	w.Note(at(0))
	w.Note(at(Bound))
	if n := w.count.Load(); n != 0 {
		t.Fatalf("%d stalls while the process ran", n)
	}
	if got := w.Since(at(time.Second), at(Bound)); !got.Equal(at(time.Second)) {
		t.Errorf("without a stall the moment moved to %v", got.Sub(start))
	}
	// The process was stopped for a minute. The next message seems to have just arrived.
	woke := Bound + time.Minute
	if got := w.Since(at(woke), at(woke)); !got.Equal(at(Bound)) {
		t.Errorf("what comes right after a stall counts from %v, want its beginning %v", got.Sub(start), Bound)
	}
	if n := w.count.Load(); n != 1 {
		t.Errorf("%d stalls, want 1", n)
	}
	for d := woke; d < woke+2*after; d += time.Second {
		w.Note(at(d))
	}
	if got := w.Since(at(woke+2*after), at(woke+2*after)); !got.Equal(at(woke + 2*after)) {
		t.Errorf("long after a stall the moment moved to %v", got.Sub(start))
	}
}

func TestElapsedIsTheLargerOfTwoClocks(t *testing.T) {
	now := time.Now()
	if got := Elapsed(now, now.Add(time.Second)); got != time.Second {
		t.Errorf("a second took %v", got)
	}
	suspended := time.Unix(0, now.UnixNano()).Add(time.Hour) // not shown by the monotonic clock
	if got := Elapsed(now, suspended); got != time.Hour {
		t.Errorf("an hour of suspension took %v", got)
	}
}
