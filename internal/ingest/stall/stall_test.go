package stall

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

type observer struct{ stalled int }

func (o *observer) Stalled(consumers int) { o.stalled = consumers }

// TestStallsHaveNoFalseAlarms checks every valid reason for a consumer without deliveries.
func TestStallsHaveNoFalseAlarms(t *testing.T) {
	t.Parallel()
	still := jetstream.ConsumerInfo{Name: "millrace", NumPending: 10, Delivered: jetstream.SequenceInfo{Consumer: 5, Stream: 5}}
	for name, c := range map[string]struct {
		change  func(look int, info *jetstream.ConsumerInfo)
		excused bool
		stalled bool
	}{
		"nothing comes":        {func(int, *jetstream.ConsumerInfo) {}, false, true},
		"nothing waits":        {func(_ int, i *jetstream.ConsumerInfo) { i.NumPending = 0 }, false, false},
		"paused":               {func(_ int, i *jetstream.ConsumerInfo) { i.Paused = true }, false, false},
		"max ack pending":      {func(_ int, i *jetstream.ConsumerInfo) { i.NumAckPending, i.Config.MaxAckPending = 7, 7 }, false, false},
		"below it":             {func(_ int, i *jetstream.ConsumerInfo) { i.NumAckPending, i.Config.MaxAckPending = 6, 7 }, false, true},
		"delivers slowly":      {func(n int, i *jetstream.ConsumerInfo) { i.Delivered.Consumer += uint64(n / 5) }, false, false},
		"is acknowledged":      {func(n int, i *jetstream.ConsumerInfo) { i.AckFloor.Stream += uint64(n / 5) }, false, false},
		"this worker is busy":  {func(int, *jetstream.ConsumerInfo) {}, true, false},
		"only the clock moves": {func(_ int, i *jetstream.ConsumerInfo) { at := time.Now(); i.Delivered.Last = &at }, false, true},
	} {
		counts, log := &observer{}, natstest.NewLog(t)
		d := NewDetector(1, log.Logger(), counts)
		now := time.Now()
		for look := range 30 {
			info := still
			c.change(look, &info)
			d.Saw(0, &info, c.excused, now.Add(time.Duration(look)*Interval))
		}
		end := now.Add(29 * Interval)
		if got := d.Err(end) != nil; got != c.stalled {
			t.Errorf("%s: unready %v, want %v", name, got, c.stalled)
		}
		if got := counts.stalled == 1; got != c.stalled {
			t.Errorf("%s: the metric says %v, want %v", name, got, c.stalled)
		}
		if got := log.Count("the consumer has messages and delivers none"); (got > 0) != c.stalled || got > 3 {
			t.Errorf("%s: said %d times in %v", name, got, 29*Interval)
		}
	}
}

// TestStallsHaveBounds shows that a stalled consumer is logged and counted after 30 s, and makes the worker unready
// after 2 min. The next delivery ends both.
func TestStallsHaveBounds(t *testing.T) {
	t.Parallel()
	counts := &observer{}
	d := NewDetector(2, natstest.NewLog(t).Logger(), counts)
	start := time.Now()
	info := jetstream.ConsumerInfo{Name: "millrace-1", NumPending: 3, Delivered: jetstream.SequenceInfo{Consumer: 1}}
	at := func(after time.Duration) {
		d.Saw(1, &info, false, start.Add(after))
	}
	at(0)
	at(0) // the first report shows the consumer's position, and the second shows no progress
	for _, c := range []struct {
		at      time.Duration
		stalled int
		unready bool
	}{{29 * time.Second, 0, false}, {30 * time.Second, 1, false}, {119 * time.Second, 1, false}, {120 * time.Second, 1, true}} {
		at(c.at)
		if got := counts.stalled; got != c.stalled {
			t.Errorf("after %v %d are stalled, want %d", c.at, got, c.stalled)
		}
		if err := d.Err(start.Add(c.at)); (err != nil) != c.unready {
			t.Errorf("after %v: %v", c.at, err)
		}
	}
	if err := d.Err(start.Add(2 * time.Minute)); err == nil || !strings.Contains(err.Error(), `consumer "millrace-1" has 3 messages`) {
		t.Errorf("the reason is %v", err)
	}
	info.Delivered.Consumer++
	at(121 * time.Second)
	if err := d.Err(start.Add(121 * time.Second)); err != nil || counts.stalled != 0 {
		t.Errorf("after a delivery: %v, %d stalled", err, counts.stalled)
	}
	at(125 * time.Second)
	d.MarkUnknown(1, start.Add(126*time.Second))
	at(200 * time.Second)
	if err := d.Err(start.Add(200 * time.Second)); err != nil || counts.stalled != 0 {
		t.Errorf("after a time without a server: %v, %d stalled", err, counts.stalled)
	}
}
