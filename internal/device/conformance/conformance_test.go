// Package conformance is the test suite that every device must pass, on CPU cores, on a virtual clock and on a GPU. It
// tests the rules of package device, which follow from CUDA's semantics.
//
// The package has no code, only tests. Start reading with this file, then order_test.go.
//
// No test depends on timing. To show that something has not happened yet, a test stalls a stream with device.Gater,
// lets other streams work, and then checks.
//
// While a gate is closed, the suite makes only calls for which a GPU doesn't wait for the whole device. It may use
// streams, events, pools, copies and launches, but not Alloc, Free, AllocHost or FreeHost.
package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
)

func TestHost(t *testing.T) {
	run(t, func(t *testing.T) device.Device {
		return opened(t)(host.Open(host.Options{Cores: 4, Kernels: operator.HostKernels()}))
	}, operatorCases(t, isCheap))
}

// TestSim runs the suite under two models. In the first, nothing takes any time. The second has rates, jitter and
// several compute slots. A short run uses only the second.
func TestSim(t *testing.T) {
	jitter := sim.Units(10 * time.Microsecond)
	jitter.Jitter, jitter.ComputeSlots = 1, 4
	models := map[string]sim.Model{"Jitter": jitter}
	if !testing.Short() { // runs the same code with zero durations
		models["Instant"] = sim.Model{}
	}
	for name, cost := range models {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) device.Device {
				return opened(t)(sim.Open(sim.Options{Seed: 1, Cost: cost, Kernels: operator.HostKernels()}))
			}, nil)
		})
	}
}

// TestCUDA runs the suite on every GPU. It uses the library that MILLRACE_KERNELS names, or otherwise the library that
// `make -C kernels` built in this checkout. Without a GPU, it skips the test with a message in capitals, or fails it if
// MILLRACE_REQUIRE_GPU=1.
func TestCUDA(t *testing.T) {
	library := os.Getenv("MILLRACE_KERNELS")
	if built := filepath.Join("..", "..", "..", "kernels", "build", "libmillrace.so"); library == "" {
		if _, err := os.Stat(built); err == nil {
			library = built
		}
	}
	all, err := cuda.List(library)
	if err != nil || len(all) == 0 {
		message := fmt.Sprintf("THE CUDA DEVICE IS NOT TESTED: NO GPU OR NO LIBMILLRACE.SO HERE: %v", err)
		if os.Getenv("MILLRACE_REQUIRE_GPU") == "1" {
			t.Fatalf("%s (MILLRACE_REQUIRE_GPU=1 MAKES THIS A FAILURE)", message)
		}
		t.Skipf("%s (SET MILLRACE_REQUIRE_GPU=1 TO FAIL INSTEAD)", message)
	}
	cases := operatorCases(t, nil)
	for _, info := range all {
		t.Run(info.ID, func(t *testing.T) {
			open := func(t *testing.T) device.Device {
				return opened(t)(cuda.Open(cuda.Options{Library: library, Ordinal: info.Ordinal}))
			}
			run(t, open, append(slices.Clone(cases), variantCases(t, open, cases)...))
		})
	}
}

// opened returns a function that ends the test if a device could not be opened.
func opened(t *testing.T) func(d device.Device, err error) device.Device {
	return func(d device.Device, err error) device.Device {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
}

// test is one rule and the function that checks it on a fresh device.
type test struct {
	name  string
	check func(r *rig)
}

// run runs the suite and the additional cases. The function open returns a fresh device for each call. The suite closes
// that device and fails if there is a leak.
func run(t *testing.T, open func(t *testing.T) device.Device, cases []operatorCase) {
	t.Helper()
	groups := []struct {
		name  string
		tests []test
	}{
		{"Info", infoTests},
		{"Copy", copyTests},
		{"Order", orderTests},
		{"Event", eventTests},
		{"Command", commandTests},
		{"DefaultStream", defaultStreamTests},
		{"Mapped", mappedTests},
		{"Completion", completionTests},
		{"Pool", poolTests},
		{"Reuse", reuseTests},
		{"Launch", launchTests},
		{"Operator", operatorTests(cases)},
		{"State", stateTests},
		{"Invalid", invalidTests},
		{"Check", checkTests},
		{"Closed", closedTests},
		{"Close", lifecycleTests},
		{"Concurrent", concurrentTests},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, one := range g.tests {
				t.Run(one.name, func(t *testing.T) { one.check(newRig(t, open)) })
			}
		})
	}
}
