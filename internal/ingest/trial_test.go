package ingest

import (
	"context"
	"errors"
	"testing"
	"time"

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
	c, err := r.js.Consumer(r.ctx(), r.opts.Stream, r.opts.Consumer)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := c.Next()
	if err != nil {
		t.Fatal(err)
	}
	input, err := newDelivery(msg, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pipe := run.worker.pipes[0]
	for range 4 { // there is a free batch each time, which an interrupted trial might take
		open := seen.hold(t)
		trial, g := run.worker.newTrier(), &group{}
		g.add(input)
		ctx, interrupt := context.WithCancel(t.Context())
		go func() {
			seen.await(t, 1, 10)
			interrupt()
		}()
		if err := trial.try(ctx, pipe, g, []int{0}); !errors.Is(err, context.Canceled) {
			t.Errorf("try = %v, want the end of the drain", err)
		}
		if n := len(trial.part.items); n != 1 {
			t.Errorf("%d payloads are on the device, want the one that was tried", n)
		}
		open()
		for range trial.part.items {
			(<-pipe.Completed()).Release()
		}
	}
}
