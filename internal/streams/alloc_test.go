package streams_test

import (
	"context"
	"testing"

	"millrace/internal/device"
	"millrace/internal/streams"
)

// A warm pipeline must not allocate per payload. At a million payloads per second, even a few bytes each would keep the
// garbage collector busy. The device's allocations per batch don't matter here, so a batch of a thousand payloads is
// compared with a batch of one.
func TestNoAllocationsAPayloadOnceWarm(t *testing.T) {
	if raceEnabled || device.Invariants {
		t.Skip("SKIPPED: the race detector and the invariants tag allocate by themselves; the plain run checks this")
	}
	p := newPipeline(t, openHost(t), streams.Options{Lanes: 2, Operators: operators(t, "crc32c")})
	one, thousand := allocationsABatch(t, p, 1), allocationsABatch(t, p, 1000)
	if more := thousand - one; more >= 1 {
		t.Errorf("a batch of 1000 payloads makes %.1f more allocations than a batch of one, want none", more)
	}
}

func allocationsABatch(t *testing.T, p *streams.Pipeline, payloads int) float64 {
	rows := someRows(1, payloads, 2000)
	ctx := context.Background()
	round := func() {
		b, err := p.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			b.Append(row)
		}
		if err := b.Submit(streams.ClosedByCount); err != nil {
			t.Fatal(err)
		}
		done := <-p.Completed()
		if done.Err() != nil {
			t.Fatal(done.Err())
		}
		done.Results(0)
		done.Release()
	}
	for range 20 {
		round()
	}
	return testing.AllocsPerRun(100, round)
}
