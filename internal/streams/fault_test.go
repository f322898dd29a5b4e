package streams_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/streams"
)

// recorder records the calls that an observer receives.
type recorder struct {
	mu    sync.Mutex
	kinds []string
}

func (r *recorder) DeviceError(_, kind string) {
	r.mu.Lock()
	r.kinds = append(r.kinds, kind)
	r.mu.Unlock()
}

func (r *recorder) errors() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.kinds...)
}

func TestRefusedLaunchLeavesTheBatchToTheCaller(t *testing.T) {
	seen := &recorder{}
	d := openSim(t, sim.Options{Faults: []sim.Fault{{Kind: sim.LaunchFailure, Nth: 2}}})
	p := newPipeline(t, d, streams.Options{Observer: seen})
	rows := someRows(3, 20, 2000)
	b := acquire(t, p, rows)
	if err := b.Submit(streams.ClosedByBytes); !errors.Is(err, device.ErrLaunch) {
		t.Fatalf("Submit = %v, want a refused launch", err)
	}
	if b.Rows() != len(rows) {
		t.Errorf("%d rows after the failure, want %d, as filled", b.Rows(), len(rows))
	}
	if err := b.Submit(streams.ClosedByBytes); err != nil {
		t.Fatalf("the second try: %v", err)
	}
	got := <-p.Completed()
	wantResults(t, got, operators(t, "crc32c,minhash?hashes=8"), rows)
	got.Release()
	if kinds := seen.errors(); len(kinds) != 1 || kinds[0] != "launch" {
		t.Errorf("device errors %v, want one launch", kinds)
	}
}

func TestLostDeviceGivesEveryBatchBack(t *testing.T) {
	seen := &recorder{}
	d := openSim(t, sim.Options{Cost: sim.Units(unit), Faults: []sim.Fault{{Kind: sim.DeviceLoss, Nth: 2}}})
	p := newPipeline(t, d, streams.Options{Lanes: 4, Operators: operators(t, "crc32c"), Observer: seen})
	release := d.Hold()
	for range 4 {
		submit(t, p, someRows(1, 5, 100))
	}
	release()
	good, failed := 0, 0
	for range 4 {
		b := <-p.Completed()
		switch {
		case b.Err() == nil:
			good++
		case errors.Is(b.Err(), device.ErrLost):
			failed++
		default:
			t.Errorf("a batch came back with %v", b.Err())
		}
		b.Release()
	}
	if good+failed != 4 || failed < 3 {
		t.Errorf("%d batches succeeded and %d failed of 4, with the loss at the second launch", good, failed)
	}
	<-p.Over()
	if !errors.Is(p.Err(), device.ErrLost) {
		t.Errorf("Err = %v, want a lost device", p.Err())
	}
	if _, err := p.Acquire(context.Background()); !errors.Is(err, device.ErrLost) {
		t.Errorf("Acquire = %v, want a lost device", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close after the loss: %v", err)
	}
	if kinds := seen.errors(); len(kinds) != 1 || kinds[0] != "lost" {
		t.Errorf("device errors %v, want one lost", kinds)
	}
}

func TestBatchWithoutScratchWaitsForAnother(t *testing.T) {
	// Allocation 2 is refused as if the pool were full. The batch gets its scratch when the first batch is done.
	d := openSim(t, sim.Options{Cost: sim.Units(unit), Faults: []sim.Fault{{Kind: sim.OutOfMemory, Nth: 2}}})
	p := newPipeline(t, d, streams.Options{Lanes: 2, Operators: operators(t, "minhash?hashes=4")})
	rows := someRows(5, 10, 500)
	submit(t, p, rows)
	submit(t, p, rows)
	for range 2 {
		b := <-p.Completed()
		wantResults(t, b, operators(t, "minhash?hashes=4"), rows)
		b.Release()
	}
	s, err := p.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if s.Scratch.Failures != 1 || s.Scratch.Allocations != 2 {
		t.Errorf("%d refused and %d successful allocations, want 1 and 2", s.Scratch.Failures, s.Scratch.Allocations)
	}
}

func TestBatchThatNeverGetsScratchFails(t *testing.T) {
	// The second refusal hits the final attempt, when no other batch is in flight.
	d := openSim(t, sim.Options{Faults: []sim.Fault{{Kind: sim.OutOfMemory, Nth: 1}, {Kind: sim.OutOfMemory, Nth: 2}}})
	p := newPipeline(t, d, streams.Options{Operators: operators(t, "minhash?hashes=4")})
	b := acquire(t, p, someRows(5, 200, 2000))
	if err := b.Submit(streams.ClosedByBytes); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("Submit = %v, want out of memory", err)
	}
	b.Release()
	ok := submit(t, p, [][]byte{[]byte("the next one")}) // the pipeline still works
	if got := <-p.Completed(); got != ok || got.Err() != nil {
		t.Errorf("the next batch failed: %v", got.Err())
	}
	ok.Release()
}

func TestLateCompletionDelaysOnlyItsBatch(t *testing.T) {
	d := openSim(t, sim.Options{Cost: sim.Units(unit), Faults: []sim.Fault{{Kind: sim.LateCompletion, Nth: 1, Delay: 100 * unit}}})
	p := newPipeline(t, d, streams.Options{Lanes: 2, Operators: operators(t, "crc32c")})
	release := d.Hold()
	late := submit(t, p, someRows(1, 3, 10))
	prompt := submit(t, p, someRows(2, 3, 10))
	release()
	if got := <-p.Completed(); got != prompt {
		t.Error("the late batch came first")
	}
	if got := <-p.Completed(); got != late {
		t.Error("the late batch did not come")
	}
	late.Release()
	prompt.Release()
}

func TestLostCompletionShowsAsNoProgress(t *testing.T) {
	d := openSim(t, sim.Options{Cost: sim.Units(unit), Faults: []sim.Fault{{Kind: sim.LostCompletion, Nth: 1}}})
	p := newPipeline(t, d, streams.Options{Lanes: 2, Operators: operators(t, "crc32c")})
	submit(t, p, someRows(1, 3, 10))
	other := submit(t, p, someRows(2, 3, 10))
	if got := <-p.Completed(); got != other {
		t.Fatal("the batch with the lost completion came back")
	}
	other.Release()
	s, err := p.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if s.InHand != 1 || s.Lanes.InFlight != 1 {
		t.Errorf("%d batches not released, %d lanes in flight, want 1 and 1", s.InHand, s.Lanes.InFlight)
	}
}
