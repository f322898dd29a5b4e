package sim_test

import (
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/conformance"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
)

// TestConformance runs the conformance suite under two models: one in which nothing takes any time, and one with rates,
// jitter and several compute slots. A short run has only the second.
func TestConformance(t *testing.T) {
	jitter := sim.H100()
	jitter.Jitter, jitter.ComputeSlots = 1, 4
	models := map[string]sim.Model{"Instant": {}, "Jitter": jitter}
	if testing.Short() { // the other runs the same code without times
		models = map[string]sim.Model{"Jitter": jitter}
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
