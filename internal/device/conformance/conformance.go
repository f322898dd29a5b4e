// Package conformance is the suite that every device passes: the rules of package device, each as a test
// that CUDA's semantics bear out. It runs on CPU cores, on a virtual clock and on a GPU.
//
// Nothing in it is timed. Where a test must see that something has not happened yet, it holds a stream back
// with device.Gater, lets other streams work, and looks.
//
// While a gate is closed the suite makes only calls that a GPU carries out without waiting for the whole
// device: streams, events, pools, copies and launches, but no Alloc, Free, AllocHost or FreeHost.
package conformance

import (
	"testing"

	"millrace/internal/device"
)

// Case is a batch, and the result that an operator must give for it, byte by byte.
type Case struct {
	Label  string // names the subtest; unique among the cases of an operator
	Name   string // the operator's
	Params []byte // its parameter block
	Rows   [][]byte
	Want   []byte // the result records, back to back
}

// test is one rule and how it is checked on a fresh device.
type test struct {
	name  string
	check func(r *rig)
}

// Run runs the suite. open returns a fresh device each time it is called; the suite closes it and fails if
// that finds a leak. The device must have the operators crc32c and minhash and implement device.Gater.
// cases are run in addition to the suite's own batches.
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
