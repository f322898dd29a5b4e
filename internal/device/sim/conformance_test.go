package sim_test

import (
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/conformance"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
)

// TestConformance runs the conformance suite under three models: one in which nothing takes any time, one with rates,
// jitter and several compute slots, and one with contention and every latency. A short run has only the last.
func TestConformance(t *testing.T) {
	jitter := sim.H100()
	jitter.Jitter, jitter.ComputeSlots = 1, 4
	contended := sim.H100()
	contended.CopyShare, contended.ComputeShare = 0.9, 0.8
	contended.Dispatch, contended.Completion, contended.Synchronize = time.Microsecond, 20*time.Microsecond, 8*time.Microsecond
	models := map[string]sim.Model{"Instant": {}, "Jitter": jitter, "Contended": contended}
	if testing.Short() { // the others run the same code with fewer latencies
		models = map[string]sim.Model{"Contended": contended}
	}
	for name, cost := range models {
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, func(t *testing.T) device.Device {
				t.Helper()
				dev, err := sim.Open(sim.Options{Seed: 1, Cost: cost, Kernels: operator.HostKernels()})
				if err != nil {
					t.Fatal(err)
				}
				return dev
			})
		})
	}
}
