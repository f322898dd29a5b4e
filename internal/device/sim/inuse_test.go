//go:build !invariants

package sim_test

import (
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/sim"
)

// TestFreeInUse checks that freeing memory that queued work uses loses the device when the work runs, as on a GPU. The
// invariants build panics at the free; see TestMisusePanics.
func TestFreeInUse(t *testing.T) {
	for _, what := range []string{"device", "host"} {
		t.Run(what, func(t *testing.T) {
			r := open(t, sim.Options{Cost: sim.Units(ms)})
			s := r.stream("s")
			m, err := r.dev.Alloc(8)
			r.ok(err)
			h, err := r.dev.AllocHost(8)
			r.ok(err)
			r.ok(s.CopyIn(m, h))
			if what == "device" {
				r.ok(r.dev.Free(m))
			} else {
				r.ok(r.dev.FreeHost(h))
			}
			r.is(s.Synchronize(), device.ErrLost)
		})
	}
}
