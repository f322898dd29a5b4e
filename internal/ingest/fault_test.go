package ingest

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// TestLostDeviceGivesEverythingBack checks which deliveries a worker with a lost device leaves for the next worker.
func TestLostDeviceGivesEverythingBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 200
	r.publish(n, document)
	// A batch takes two launches. Documents have up to 1000 bytes, so one payload is always carried over to the next
	// batch.
	d := simDevice(t, sim.Fault{Kind: sim.DeviceLoss, Nth: 7})
	release := d.Hold()
	first := r.prepare(d, streams.Options{BatchBytes: 2000})
	first.startAndReceive(n)
	release()
	if err := first.wait(); !errors.Is(err, device.ErrLost) {
		t.Fatalf("Run = %v, want a lost device", err)
	}
	acked := r.tally.stored()
	if got := len(r.stored("results.>")); got != acked {
		t.Errorf("%d results when the device was lost, and %d inputs were acknowledged", got, acked)
	}
	if r.tally.count(inflight.Nacked) == 0 {
		t.Error("nothing was given back when the device was lost")
	}
	second := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, n)
	if err := second.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.awaitFinished(n)
	r.wantAll(n, document)
}

// noScratch makes a device refuse scratch twice for the first batch that needs it. The second refusal is for the
// batch's retry, when no other batch is left to free memory.
var noScratch = []sim.Fault{{Kind: sim.OutOfMemory, Nth: 1}, {Kind: sim.OutOfMemory, Nth: 2}}

func TestRefusedBatchComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 100
	payload := someBytes(100, 200, 300)
	r.publish(n, payload)
	seen := &deviceErrors{}
	d := simDevice(t, noScratch...)
	run := r.run(d, streams.Options{BatchPayloads: 10, Lanes: 1, Observer: seen})
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	back := r.tally.count(inflight.Nacked)
	if back == 0 || back > 10 || r.tally.redelivered() != back {
		t.Errorf("%d given back and %d redelivered, want the same, from a batch of up to 10", back, r.tally.redelivered())
	}
	if len(seen.kinds) != 1 || seen.kinds[0] != "out_of_memory" {
		t.Errorf("device errors %v, want one of out_of_memory", seen.kinds)
	}
	r.awaitFinished(n)
	r.wantAll(n, payload)
}

// TestALostDeviceIsNotWaitedFor loses a device while the worker holds a quarantined payload. No device is left for
// its retry, so the worker must not wait.
func TestALostDeviceIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.DrainTimeout = time.Hour
	r.provision()
	d := simDevice(t, sim.Fault{Kind: sim.DeviceLoss, Nth: 1})
	release := d.Hold()
	run := r.prepare(d, streams.Options{BatchPayloads: 4})
	run.start()
	until(t, "the worker pulls", func() bool { return r.consumerInfo().NumWaiting > 0 })
	pulling := r.consumerInfo().NumWaiting
	c := r.Consumer(r.opts.Stream, r.opts.Consumer)
	mine, err := c.Fetch(1, jetstream.FetchMaxWait(patience)) // one delivery for another client
	if err != nil {
		t.Fatal(err)
	}
	until(t, "somebody else pulls too", func() bool { return r.consumerInfo().NumWaiting > pulling })
	r.publish(60, document)
	suspect := <-mine.Messages()
	until(t, "fresh payloads are in hand", func() bool { return run.worker.Status().InHand > 0 })
	if err := suspect.Nak(); err != nil {
		t.Fatal(err)
	}
	until(t, "the suspect came", func() bool { return r.tally.redelivered() == 1 })
	release()
	if err := run.wait(); !errors.Is(err, device.ErrLost) {
		t.Errorf("Run = %v, want a lost device", err)
	}
}
