// Package conformance is the test suite that every device must pass. It tests the rules of package device, which follow
// from CUDA's semantics, on CPU cores, on a virtual clock and on a GPU.
//
// The tests of packages cuda, host and sim call Run. Start reading with this file, then order.go.
//
// No test depends on timing. To show that something has not happened yet, a test stalls a stream with device.Gater,
// lets other streams work, and then checks.
//
// While a gate is closed, the suite only makes calls that a GPU carries out without waiting for the whole device:
// streams, events, pools, copies and launches, but not Alloc, Free, AllocHost or FreeHost.
package conformance

import (
	"testing"

	"millrace/internal/device"
)

// Case is a batch and the exact result that an operator must produce for it.
type Case struct {
	Label  string // name of the subtest; unique among the cases of an operator
	Name   string // name of the operator
	Params []byte // its parameter block
	Rows   [][]byte
	Want   []byte // the result records, back to back
}

// test is one rule and the function that checks it on a fresh device.
type test struct {
	name  string
	check func(r *rig)
}

// Run runs the suite. The function open returns a fresh device for each call; the suite closes that device and fails if
// there is a leak. The device must have the operators crc32c and minhash and implement device.Gater. Run also runs
// cases, in addition to the suite's own batches.
func Run(t *testing.T, open func(t *testing.T) device.Device, cases ...Case) {
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
		{"Operator", caseTests(cases)},
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
