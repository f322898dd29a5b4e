package streams_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/device/sim"
	"millrace/internal/streams"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// unit is the length of one stage in the textbook model.
const unit = time.Millisecond

// runBatches submits n equal batches at the same virtual time and returns their records in order.
func runBatches(t *testing.T, d *sim.Device, p *streams.Pipeline, n int) []streams.Record {
	t.Helper()
	rows := someRows(1, 8, 512)
	if p.Slots() >= n {
		release := d.Hold()
		defer release()
		for range n {
			submit(t, p, rows)
		}
		release()
	}
	var records []streams.Record
	for len(records) < n {
		if p.Slots() < n {
			submit(t, p, rows)
		}
		b := <-p.Completed()
		if b.Err() != nil {
			t.Fatal(b.Err())
		}
		records = append(records, *b.ReadRecord())
		b.Release()
	}
	return records
}

// makespan returns the time from the first stage's start to the last stage's end.
func makespan(records []streams.Record) time.Duration {
	first, last := records[0].Stages[streams.CopyIn].Start, time.Duration(0)
	for _, r := range records {
		first = min(first, r.Stages[streams.CopyIn].Start)
		last = max(last, r.Stages[streams.CopyOut].End)
	}
	return last - first
}

func TestFourBatchesOfThreeUnitStages(t *testing.T) {
	for _, c := range []struct {
		schedule streams.Schedule
		want     time.Duration
		overlaps bool
	}{
		{streams.Serial, 12 * unit, false},
		{streams.Overlapped, 6 * unit, true},
	} {
		t.Run(c.schedule.Name, func(t *testing.T) {
			d := openSim(t, sim.Options{Cost: sim.Units(unit)})
			p := newPipeline(t, d, streams.Options{Lanes: 4, Schedule: c.schedule, Operators: operators(t, "crc32c")})
			records := runBatches(t, d, p, 4)
			if got := makespan(records); got != c.want {
				t.Errorf("four batches took %v, want %v", got, c.want)
			}
			s, err := p.Stats()
			if err != nil {
				t.Fatal(err)
			}
			for e, busy := range s.Engines {
				if busy != 4*unit {
					t.Errorf("engine %v was busy for %v, want %v", streams.Engine(e), busy, 4*unit)
				}
			}
			if s.Busy != c.want {
				t.Errorf("device busy for %v, want %v", s.Busy, c.want)
			}
			wantOverlap := time.Duration(0)
			if c.overlaps {
				wantOverlap = 4 * unit // slots 1 to 4, out of slots 0 to 5
			}
			if s.Overlap != wantOverlap {
				t.Errorf("overlap of %v, want %v", s.Overlap, wantOverlap)
			}
		})
	}
}

// TestStatsCoverTheTimeBeforeABatchInFlight checks that Stats end at the start of a batch in flight, because its stages may still add busy
// time.
func TestStatsCoverTheTimeBeforeABatchInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := spyOn(openSim(t, sim.Options{Cost: sim.Units(unit)}))
		p := newPipeline(t, d, streams.Options{Lanes: 2, Operators: operators(t, "crc32c")})
		open := d.gate(t, "lane-0")
		stalled, free := submit(t, p, someRows(1, 5, 100)), submit(t, p, someRows(2, 5, 100))
		if got := <-p.Completed(); got != free {
			t.Fatal("the stalled batch came back")
		}
		free.Release()
		if s, err := p.Stats(); err != nil || s.Counted >= unit || s.Uptime < 3*unit {
			t.Errorf("the figures cover %v of %v (%v), want none since the batch in flight was submitted", s.Counted, s.Uptime, err)
		}
		open()
		if got := <-p.Completed(); got != stalled {
			t.Fatal("another batch came back")
		}
		stalled.Release()
		if s, err := p.Stats(); err != nil || s.Counted != s.Uptime {
			t.Errorf("the figures cover %v of %v (%v), want all of it", s.Counted, s.Uptime, err)
		}
	})
}

// TestStatsCoverIdleTime checks that Stats cover the whole time if no batch is in flight. The clock of a host device continues.
func TestStatsCoverIdleTime(t *testing.T) {
	p := newPipeline(t, openHost(t), streams.Options{Operators: operators(t, "crc32c")})
	submit(t, p, someRows(1, 5, 100))
	(<-p.Completed()).Release()
	if s, err := p.Stats(); err != nil || s.Counted != s.Uptime || s.Busy == 0 {
		t.Errorf("the figures cover %v of %v, with %v busy (%v), want all of it", s.Counted, s.Uptime, s.Busy, err)
	}
}

func TestDoubleBufferedOverlapsCopyWithCompute(t *testing.T) {
	d := openSim(t, sim.Options{Cost: sim.Units(unit)})
	p := newPipeline(t, d, streams.Options{Schedule: streams.DoubleBuffered, Operators: operators(t, "crc32c")})
	records := runBatches(t, d, p, 2)
	if a, b := records[0].Stages[streams.Compute], records[1].Stages[streams.CopyIn]; a != b {
		t.Errorf("copy in of batch 2 ran at %v, want it at the same time as the kernel of batch 1, at %v", b, a)
	}
	if got := makespan(records); got != 4*unit {
		t.Errorf("two batches took %v, want %v", got, 4*unit)
	}
}

// A copy that waits for its engine has not started, even if its stream has reached it.
func TestStagesStartWhenTheEngineIsFree(t *testing.T) {
	d := openSim(t, sim.Options{Cost: sim.Units(unit)})
	p := newPipeline(t, d, streams.Options{Lanes: 4, Operators: operators(t, "crc32c")})
	for i, r := range runBatches(t, d, p, 4) {
		for s := streams.CopyIn; s <= streams.CopyOut; s++ {
			if got := r.Stages[s].Duration(); got != unit {
				t.Errorf("batch %d: %v took %v, want %v", i, s, got, unit)
			}
		}
	}
}

func TestOverlapIsDeterministicOnSim(t *testing.T) {
	run := func() []streams.Record {
		cost := sim.Units(10 * time.Microsecond)
		cost.Jitter = 0.3
		d := openSim(t, sim.Options{Seed: 7, Cost: cost})
		p := newPipeline(t, d, streams.Options{Lanes: 4})
		return runBatches(t, d, p, 8)
	}
	a, b := run(), run()
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("batch %d differs between two runs:\n%+v\n%+v", i, a[i], b[i])
		}
	}
}
