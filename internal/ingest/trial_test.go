package ingest

import (
	"context"
	"errors"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/streams"
)

// A trial that the end of the drain interrupts is on the device still: it is not run a second time beside itself.
func TestAnInterruptedTrialIsNotRunAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.publish(1, someBytes(10))
	d, seen := watchedDevice(t)
	run := r.prepare(d, streams.Config{Lanes: 4})
	input := r.input()
	pipe := run.worker.pipes[0]
	for range 4 { // there is a free batch each time, which an interrupted trial might take
		open := seen.hold(t)
		trial, g := run.worker.newTrier(), &inflight.Batch{}
		g.Add(input)
		ctx, interrupt := context.WithCancel(t.Context())
		go func() {
			seen.await(t, 1, 10)
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

// input takes the next input as a worker would.
func (r *rig) input() inflight.Delivery {
	r.t.Helper()
	var d inflight.Delivery
	request := pull.Request{Stream: r.opts.Stream, Consumer: r.opts.Consumer, Bytes: 1 << 20}
	came, err := pull.Fetch(r.connect(), request, 1, patience, func(m *pull.Message) {
		var err error
		if d, err = inflight.NewDelivery(m, time.Now()); err != nil {
			r.t.Error(err)
		}
	})
	if came != 1 || err != nil {
		r.t.Fatalf("%d inputs came: %v", came, err)
	}
	return d
}

// A suspect whose turn comes when the device has been lost to another is not to blame for that, however often it came.
func TestASuspectThatNeverRanIsGivenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.publish(1, someBytes(10))
	run := r.prepare(simDevice(t, sim.Fault{Kind: sim.DeviceLoss, Nth: 1}), streams.Config{})
	input := r.input()
	input.Level = run.worker.limit
	if !run.worker.levels.guilty(input.Level) {
		t.Fatalf("a payload of level %d is not tried for the last time", input.Level)
	}
	pipe := run.worker.pipes[0]
	other, err := pipe.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other.Append([]byte("what the device is lost with"))
	if err := other.Submit(streams.ClosedByLinger); err != nil {
		t.Fatal(err)
	}
	(<-pipe.Completed()).Release()
	<-pipe.Over()

	g := &inflight.Batch{}
	g.Add(input)
	if err := run.worker.newTrier().try(t.Context(), pipe, g, []int{0}); !errors.Is(err, device.ErrLost) {
		t.Errorf("try = %v, want the loss of the device", err)
	}
	if back, dead := r.tally.count(inflight.Nacked), r.tally.count(inflight.DeadLettered); back != 1 || dead != 0 {
		t.Errorf("%d given back and %d dead-lettered, want 1 and none", back, dead)
	}
}
