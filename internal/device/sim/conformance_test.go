package sim_test

import (
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/conformance"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
)

// TestConformance runs the suite that every device passes, under two models: one where nothing takes any
// time, and one with rates, jitter and several compute slots.
func TestConformance(t *testing.T) {
	jitter := sim.H100()
	jitter.Jitter, jitter.ComputeSlots = 1, 4
	for name, cost := range map[string]sim.Model{"Instant": {}, "Jitter": jitter} {
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
