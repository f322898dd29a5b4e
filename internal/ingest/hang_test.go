package ingest

import (
	"errors"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// TestADeviceThatHangsBesideOneThatWorks hangs one of two devices. That ends the worker, although the other device
// still works. The next worker receives the first device's payloads, and no result is lost or duplicated.
func TestADeviceThatHangsBesideOneThatWorks(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"shared": 0, "exclusive": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if partitions > 0 {
				r.opts.Exclusive, r.opts.Partitions = true, partitions
			}
			r.opts.AckWait = 3 * time.Second
			r.provision()
			hangs, err := sim.Open(sim.Options{Kernels: operator.HostKernels()}) // closing a hung device is not allowed
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(hangs.Hold())
			o := streams.Options{BatchPayloads: 5, Deadline: streams.Deadline{Min: time.Second, Max: 2 * time.Second}}
			run := r.withDevices(o, hangs, hostDevice(t))
			stuck, well := run.worker.pipes[0], run.worker.pipes[1]
			run.start()
			const n = 500
			r.publish(n, document)
			until(t, "a batch is on the device that hangs", func() bool { return stuck.Oldest().Batch > 0 })
			<-stuck.Over()
			if well.Err() != nil {
				t.Errorf("the other device ended too: %v", well.Err())
			}
			if err := run.wait(); !errors.Is(err, device.ErrHung) {
				t.Errorf("Run = %v, want the device that hangs", err)
			}
			before := r.tally.stored()
			if before == 0 || before >= n {
				t.Errorf("%d of %d inputs have results of the device that works, want some", before, n)
			}
			next := r.run(hostDevice(t), streams.Options{})
			r.tally.awaitStored(t, n)
			if err := next.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			r.wantAll(n, document)
			if letters := r.storedIn(deadStream, "deadletter.>"); len(letters) != 0 {
				t.Errorf("%d dead letters, want none: no payload was to blame", len(letters))
			}
		})
	}
}
