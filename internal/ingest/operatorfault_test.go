package ingest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// TestAProcessLeavesANoteAboutTheOperatorThatLostItsDevice shows that a note names the operator to the next process.
// The counters end with the process.
func TestAProcessLeavesANoteAboutTheOperatorThatLostItsDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	r.opts.Operators = ops
	r.provision()
	const n = 50
	r.publish(n, document)
	run := r.prepare(simDevice(t, sim.Fault{Kind: sim.DeviceLoss, Nth: 1}), streams.Options{Operators: ops})
	run.start()
	if err := run.wait(); !errors.Is(err, device.ErrKernelFault) {
		t.Fatalf("Run = %v, want a device lost by a kernel", err)
	}
	if got := r.tally.operatorFaults(); !slices.Equal(got, []string{"crc32c device"}) {
		t.Errorf("faults %v, want one of crc32c", got)
	}
	if note := r.consumerInfo().Config.Metadata[inflight.FaultNote]; !strings.HasPrefix(note, "crc32c:device:") {
		t.Errorf("the consumer has the note %q", note)
	}
	second := r.run(hostDevice(t), streams.Options{Operators: ops})
	r.tally.awaitStored(t, n)
	if err := second.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if got := r.tally.operatorFaults(); !slices.Equal(got, []string{"crc32c device", "crc32c device earlier"}) {
		t.Errorf("faults %v, want that of the first process too", got)
	}
	r.awaitFinished(n)
	r.wantAll(n, document)
}
