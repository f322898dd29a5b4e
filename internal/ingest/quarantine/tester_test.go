package quarantine

import (
	"context"
	"errors"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// TestAnInterruptedTrialIsNotRunAgain interrupts a try by the end of the drain. The interrupted batch is still on the
// device, so it must not run a second time.
func TestAnInterruptedTrialIsNotRunAgain(t *testing.T) {
	t.Parallel()
	d, held := heldDevice(t)
	pipe, isolated, _ := isolate(t, d, 4)
	for range 4 { // an interrupted try might take one of the free batches
		open := held.close()
		trial, g := newTester(isolated), &inflight.Batch{}
		g.Add(paperInput(10))
		ctx, interrupt := context.WithCancel(t.Context())
		go func() {
			<-held.began
			interrupt()
		}()
		if err := trial.try(ctx, pipe, g, []int{0}); !errors.Is(err, context.Canceled) {
			t.Errorf("try = %v, want the end of the drain", err)
		}
		if n := len(trial.part.Items); n != 1 {
			t.Errorf("%d payloads are on the device, want the one that was tried", n)
		}
		open()
		for range trial.part.Items {
			(<-pipe.Completed()).Release()
		}
	}
}

// TestASuspectThatNeverRanIsGivenBack shows that a quarantined payload is not to blame if the device was already
// lost. This holds for any number of deliveries.
func TestASuspectThatNeverRanIsGivenBack(t *testing.T) {
	t.Parallel()
	pipe, isolated, ended := isolate(t, faultyDevice(t, sim.Fault{Kind: sim.DeviceLoss, Nth: 1}), 2)
	suspect := paperInput(10)
	suspect.Level = isolated.Limit
	if !isolated.Levels.isGuilty(suspect.Level) {
		t.Fatalf("a payload of level %d is not tried for the last time", suspect.Level)
	}
	other, err := pipe.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other.Append([]byte("what the device is lost with"))
	switch err := other.Submit(streams.ClosedByLinger); { // any command or the end may report the loss
	case err == nil:
		(<-pipe.Completed()).Release()
	case errors.Is(err, device.ErrLost):
		other.Release()
	default:
		t.Fatal(err)
	}
	<-pipe.Over()

	g := &inflight.Batch{}
	g.Add(suspect)
	if err := newTester(isolated).try(t.Context(), pipe, g, []int{0}); !errors.Is(err, device.ErrLost) {
		t.Errorf("try = %v, want the loss of the device", err)
	}
	if back, dead := ended.back, ended.dead; back != 1 || dead != 0 {
		t.Errorf("%d given back and %d dead-lettered, want 1 and none", back, dead)
	}
}
