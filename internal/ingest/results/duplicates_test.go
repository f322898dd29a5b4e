package results

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
)

// TestTheWindowIsAsLongAsIdsAreKnown shows that a longer window covers forgotten ids only after some time.
func TestTheWindowIsAsLongAsIdsAreKnown(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := start.Add
	tell := func(w *duplicateWindow, d, now time.Duration) {
		w.saw(&jetstream.StreamInfo{Config: jetstream.StreamConfig{Duplicates: d}, TimeStamp: at(now)}, at(now))
	}
	w := &duplicateWindow{}
	tell(w, time.Minute, 0)
	for _, c := range []struct{ tell, now, want time.Duration }{
		{0, 0, 40 * time.Second},
		{time.Hour, 0, 40 * time.Second},
		{0, 10 * time.Second, 50 * time.Second},
		{time.Hour, 30 * time.Second, 70 * time.Second}, // queried again
		{0, 2 * time.Hour, time.Hour - 20*time.Second},
		{10 * time.Second, 2 * time.Hour, 5 * time.Second},
		{time.Millisecond, 2 * time.Hour, time.Second},
	} {
		if c.tell > 0 {
			tell(w, c.tell, c.now)
		}
		if got := w.publishFor(at(c.now)); got != c.want {
			t.Errorf("after %v, with a window of %v: results are published for %v, want %v", c.now, c.tell, got, c.want)
		}
	}
}

func TestClearance(t *testing.T) { // not parallel, because it counts allocations
	now := time.Now()
	w := &duplicateWindow{}
	// The server's clock is a minute ahead.
	w.saw(&jetstream.StreamInfo{Config: jetstream.StreamConfig{Duplicates: 2 * time.Minute}, TimeStamp: now.Add(time.Minute)}, now)
	for name, c := range map[string]struct {
		d    inflight.Delivery
		want bool
	}{
		"just delivered":  {inflight.Delivery{Cleared: now.Add(-time.Second), Stored: now.Add(-time.Hour)}, true},
		"held for long":   {inflight.Delivery{Cleared: now.Add(-100 * time.Second), Stored: now.Add(-time.Hour)}, false},
		"again and young": {inflight.Delivery{Stored: now.Add(-39 * time.Second)}, true},
		"again and old":   {inflight.Delivery{Stored: now.Add(-41 * time.Second)}, false},
		"held while suspended": {inflight.Delivery{Cleared: time.Unix(0, now.Add(-100*time.Second).UnixNano()), Stored: now.Add(-time.Hour)},
			false},
	} {
		if got := w.mayPublishUnchecked(&c.d, now, w.publishFor(now)); got != c.want {
			t.Errorf("%s: may be published: %v, want %v", name, got, c.want)
		}
	}
	d := inflight.Delivery{Cleared: now}
	if n := testing.AllocsPerRun(100, func() { w.mayPublishUnchecked(&d, now, time.Minute) }); n != 0 {
		t.Errorf("clearing a delivery allocates %v times", n)
	}
}
