package conformance

import (
	"context"
	"errors"
	"time"

	"millrace/internal/device"
)

var checkTests = []test{
	{"Works", checkWorks},
	{"Busy", checkBusy},
	{"NoTime", checkNoTime},
}

// checkPatience is how long a working device may take to complete a Check.
const checkPatience = 30 * time.Second

// checkWorks checks that repeated checks of a working device succeed, and that its other work continues.
func checkWorks(r *rig) {
	s, m, b := r.stream("s"), r.memory(4096), r.host(4096, 7)
	ctx, cancel := context.WithTimeout(context.Background(), checkPatience)
	defer cancel()
	for range 10 {
		r.ok(s.CopyIn(m, b), r.dev.Check(ctx))
	}
	r.ok(s.Fill(m, 8), s.CopyOut(b, m), s.Synchronize())
	r.wantAll("what was copied around the checks", b, 8)
}

// checkBusy checks that a device with stalled streams doesn't count as lost, whether or not it answers.
func checkBusy(r *rig) {
	s := r.stream("s")
	open := r.gate(s)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := r.dev.Check(ctx); err != nil && !errors.Is(err, device.ErrNotReady) {
		r.Errorf("check of a busy device: got %v, want none or one that wraps %q", err, device.ErrNotReady)
	}
	r.ok(r.dev.Err())
	open()
	r.sync(s)
	later, cancelLater := context.WithTimeout(context.Background(), checkPatience)
	defer cancelLater()
	r.ok(r.dev.Check(later))
}

// checkNoTime checks that a Check with an ended context draws no conclusion about the device.
func checkNoTime(r *rig) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.dev.Check(ctx); !errors.Is(err, device.ErrNotReady) || errors.Is(err, device.ErrLost) {
		r.Errorf("check without time: got %v, want one that wraps %q", err, device.ErrNotReady)
	}
	r.ok(r.dev.Err())
}
