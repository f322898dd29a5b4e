package ingest

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// TestStallsHaveNoFalseAlarms goes through what a consumer that delivers nothing may have for an excuse.
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
		tally, log := newTally(), natstest.NewLog(t)
		s := newStalls(1, log.Logger(), tally)
		now := time.Now()
		for look := range 30 {
			info := still
			c.change(look, &info)
			s.saw(0, &info, c.excused, now.Add(time.Duration(look)*backlogEvery))
		}
		end := now.Add(29 * backlogEvery)
		if got := s.err(end) != nil; got != c.stalled {
			t.Errorf("%s: unready %v, want %v", name, got, c.stalled)
		}
		if got := tally.stalledNow() == 1; got != c.stalled {
			t.Errorf("%s: the metric says %v, want %v", name, got, c.stalled)
		}
		if got := log.Count("the consumer has messages and delivers none"); (got > 0) != c.stalled || got > 3 {
			t.Errorf("%s: said %d times in %v", name, got, 29*backlogEvery)
		}
	}
}

// TestStallsHaveBounds: a warning and the metric after 30 s, unready after 2 min, and all of it gone with the next delivery.
func TestStallsHaveBounds(t *testing.T) {
	t.Parallel()
	tally := newTally()
	s := newStalls(2, natstest.NewLog(t).Logger(), tally)
	start := time.Now()
	info := jetstream.ConsumerInfo{Name: "millrace-1", NumPending: 3, Delivered: jetstream.SequenceInfo{Consumer: 1}}
	at := func(d time.Duration) {
		s.saw(1, &info, false, start.Add(d))
	}
	at(0)
	at(0) // the first shows where it is, the second that it is there still
	for _, c := range []struct {
		at      time.Duration
		stalled int
		unready bool
	}{{29 * time.Second, 0, false}, {30 * time.Second, 1, false}, {119 * time.Second, 1, false}, {120 * time.Second, 1, true}} {
		at(c.at)
		if got := tally.stalledNow(); got != c.stalled {
			t.Errorf("after %v %d are stalled, want %d", c.at, got, c.stalled)
		}
		if err := s.err(start.Add(c.at)); (err != nil) != c.unready {
			t.Errorf("after %v: %v", c.at, err)
		}
	}
	if err := s.err(start.Add(2 * time.Minute)); err == nil || !strings.Contains(err.Error(), `consumer "millrace-1" has 3 messages`) {
		t.Errorf("the reason is %v", err)
	}
	info.Delivered.Consumer++
	at(121 * time.Second)
	if err := s.err(start.Add(121 * time.Second)); err != nil || tally.stalledNow() != 0 {
		t.Errorf("after a delivery: %v, %d stalled", err, tally.stalledNow())
	}
	at(125 * time.Second)
	s.unknown(1, start.Add(126*time.Second))
	at(200 * time.Second)
	if err := s.err(start.Add(200 * time.Second)); err != nil || tally.stalledNow() != 0 {
		t.Errorf("after a time without a server: %v, %d stalled", err, tally.stalledNow())
	}
}

// TestAConsumerThatCannotDeliverIsNoticed has a consumer whose own bound is smaller than its next message. The worker says so,
// and goes on when somebody has raised the bound.
func TestAConsumerThatCannotDeliverIsNoticed(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"shared", "exclusive"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = mode == "exclusive", 1
			r.provision()
			name := r.opts.Consumer
			if r.opts.Exclusive {
				name = topology.PartitionConsumer(name, 0)
			}
			bound := func(bytes int) {
				c, err := r.js.Consumer(r.ctx(), r.opts.Stream, name)
				if err != nil {
					t.Fatal(err)
				}
				config := c.CachedInfo().Config
				config.MaxRequestMaxBytes = bytes
				r.changePartition(config)
			}
			bound(64 << 10)
			r.publish(1, document)
			run := r.prepare(hostDevice(t), streams.Config{})
			run.worker.stalls.after, run.worker.stalls.unready = 3*time.Second, 3*time.Second
			run.start()
			r.tally.awaitStored(t, 1)
			if err := run.worker.Stalled(); err != nil {
				t.Errorf("with nothing wrong: %v", err)
			}
			r.publishFrom(1, 2, someBytes(100<<10))
			r.publishFrom(2, 100, document)
			r.tally.awaitFunc(t, "stalled", 1, r.tally.stalledNow)
			r.log.Await(t, "the consumer has messages and delivers none")
			r.log.Await(t, "max_request_max_bytes")
			if err := run.worker.Stalled(); err == nil {
				t.Error("the worker counts as ready")
			}
			bound(0)
			r.tally.awaitStored(t, 100)
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
		})
	}
}
