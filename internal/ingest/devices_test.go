package ingest

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// TestWorkGoesToTheDeviceThatIsFree shows that a device without progress keeps only the payloads in its own buffers.
// A second device processes all other payloads.
func TestWorkGoesToTheDeviceThatIsFree(t *testing.T) {
	r := provisioned(t)
	const n = 300
	seen := r.observeRecords()
	stuck := simDevice(t)
	release := stuck.Hold()
	run := r.prepareOn(streams.Options{BatchPayloads: 1}, named{stuck, "stuck"}, named{hostDevice(t), "free"})
	held := run.worker.pipes[0].Slots()
	run.start()
	r.publish(n, document)
	r.tally.awaitStored(t, n-held)
	release()
	run.finishAfter(n)
	r.wantAll(n, document)
	r.wantSettled(n)
	if slow, fast := len(seen.of("stuck")), len(seen.of("free")); slow != held || fast != n-held {
		t.Errorf("the devices computed %d and %d batches of one payload, want %d and %d", slow, fast, held, n-held)
	}
}

// TestASuspectTakesAnotherDeviceWithEachLevel shows that each quarantine level tries a payload on another device. The
// payload may not be the cause of the first device's loss.
func TestASuspectTakesAnotherDeviceWithEachLevel(t *testing.T) {
	r := provisioned(t)
	payload := someBytes(10, 20)
	r.publish(2, payload)
	c := r.Consumer(r.opts.Stream, r.opts.Consumer)
	next := func() jetstream.Msg {
		t.Helper()
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		check(r.TB, err)
		return m
	}
	once, twice := next(), next()
	check(t, twice.Nak())
	twice = next()
	check(t, once.Nak())
	check(t, twice.Nak())

	seen := r.observeRecords()
	run := r.prepareOn(streams.Options{}, named{hostDevice(t), "0"}, named{hostDevice(t), "1"})
	run.start()
	run.finishAfter(2)
	r.wantAll(2, payload)
	for device, want := range []int{20, 10} { // payloads of level 2 and level 1
		if b := batchOf(t, seen.of(strconv.Itoa(device)), 1); b.Bytes != want || b.Payloads != 1 {
			t.Errorf("device %d computed %d payloads of %d bytes, want the one of %d", device, b.Payloads, b.Bytes, want)
		}
	}
}

// TestBusyLaneFillsItsBatch holds one payload on the only lane, so the next batch waits for more payloads. It checks
// what ends the wait. The first payload does not wait, because the lane is free.
func TestBusyLaneFillsItsBatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		sizes  []int // sizes of the payloads after the first
		rows   int   // payloads in the second batch
		bytes  int   // bytes in the second batch
		linger time.Duration
		want   streams.CloseReason
	}{
		{"count", []int{1, 0, 3, 4, 5, 6, 7}, 5, 13, 2 * patience, streams.ClosedByCount},
		{"bytes reached", []int{400, 600, 1}, 2, 1000, 2 * patience, streams.ClosedByBytes},
		{"bytes exceeded", []int{400, 601, 1}, 1, 400, 2 * patience, streams.ClosedByBytes},
		{"one payload of the whole batch", []int{1000, 1000}, 1, 1000, 2 * patience, streams.ClosedByBytes},
		{"linger", []int{400}, 1, 400, 20 * time.Millisecond, streams.ClosedByLinger},
		{"drain", []int{400}, 1, 400, 2 * patience, streams.ClosedByDrain},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := provisioned(t, func(o *Options) { o.Linger = c.linger })
			seen := r.observeRecords()
			sizes := append([]int{10}, c.sizes...)
			d, w := watchedDevice(t)
			run := r.prepare(d, streams.Options{Lanes: 1, BatchBytes: 1000, BatchPayloads: 5})
			open := w.hold(t)
			r.publish(1, someBytes(sizes...))
			run.start()
			w.await(t, 1, 10)
			r.publishFrom(1, len(sizes), someBytes(sizes...))
			if c.want == streams.ClosedByDrain {
				until(t, "the second batch is begun", func() bool { return run.worker.Status().InHand == 2 })
				run.stop()
			}
			w.await(t, c.rows, c.bytes)
			open()
			run.finishAfter(len(sizes))
			if b := batchOf(t, seen.all(), 1); b.Payloads != 1 || b.Closed != streams.ClosedByLinger {
				t.Errorf("the first batch has %d payloads, closed by %v, want 1 and linger", b.Payloads, b.Closed)
			}
			if b := batchOf(t, seen.all(), 2); b.Payloads != c.rows || b.Closed != c.want {
				t.Errorf("the second batch has %d payloads, closed by %v, want %d and %v", b.Payloads, b.Closed, c.rows, c.want)
			}
			r.wantAll(len(sizes), someBytes(sizes...))
			r.wantSettled(len(sizes))
		})
	}
}

// lossOf returns a fault that loses the device in a launch. A batch takes two launches.
func lossOf(launch int) sim.Fault { return sim.Fault{Kind: sim.DeviceLoss, Nth: launch} }

// noScratch makes a device refuse scratch twice for the first batch that needs it. The second refusal is for the
// batch's retry, when no other batch is left to free memory.
var noScratch = []sim.Fault{{Kind: sim.OutOfMemory, Nth: 1}, {Kind: sim.OutOfMemory, Nth: 2}}

func TestRefusedBatchComesBack(t *testing.T) {
	r := provisioned(t)
	const n = 100
	payload := someBytes(100, 200, 300)
	r.publish(n, payload)
	seen := &deviceErrors{}
	r.run(simDevice(t, noScratch...), streams.Options{BatchPayloads: 10, Lanes: 1, Observer: seen}).finishAfter(n)
	back := r.tally.count(inflight.Nacked)
	if back == 0 || back > 10 || r.tally.redelivered() != back {
		t.Errorf("%d given back and %d redelivered, want the same, from a batch of up to 10", back, r.tally.redelivered())
	}
	if !slices.Equal(seen.kinds, []string{"out_of_memory"}) {
		t.Errorf("device errors %v, want one of out_of_memory", seen.kinds)
	}
	r.awaitSettled()
	r.wantAll(n, payload)
}

// TestALostDeviceGivesEverythingBack checks which deliveries a worker with a lost device leaves for the next worker.
// A note names the operator that lost the device to the next process, because the counters end with the process.
func TestALostDeviceGivesEverythingBack(t *testing.T) {
	r := provisioned(t)
	const n = 200
	r.publish(n, document)
	// Documents have up to 1000 bytes, so one payload is always carried over to the next batch.
	d := simDevice(t, lossOf(7))
	release := d.Hold()
	first := r.prepare(d, streams.Options{BatchBytes: 2000})
	first.startAndReceive(n)
	release()
	wantError(t, first.wait(), device.ErrKernelFault)
	first.wantLost()
	acked := r.tally.stored()
	if got := len(r.stored("results.>")); got != acked {
		t.Errorf("%d results when the device was lost, and %d inputs were acknowledged", got, acked)
	}
	if r.tally.count(inflight.Nacked) == 0 {
		t.Error("nothing was given back when the device was lost")
	}
	faults := r.tally.operatorFaults()
	if len(faults) != 1 || !strings.HasSuffix(faults[0], " device") {
		t.Fatalf("faults %v, want one of an operator that lost its device", faults)
	}
	name, _, _ := strings.Cut(faults[0], " ")
	if note := r.consumerInfo().Config.Metadata[inflight.FaultNote]; !strings.HasPrefix(note, name+":device:") {
		t.Errorf("the consumer has the note %q", note)
	}
	r.process(hostDevice(t), streams.Options{})
	if got, want := r.tally.operatorFaults(), []string{faults[0], faults[0] + " earlier"}; !slices.Equal(got, want) {
		t.Errorf("faults %v, want %v: also that of the first process", got, want)
	}
	r.wantAll(n, document)
}

// TestADeviceThatHangsBesideOneThatWorks hangs one of two devices. That ends the worker, although the other device
// still works. The next worker receives the first device's payloads, and no result is lost or duplicated.
func TestADeviceThatHangsBesideOneThatWorks(t *testing.T) {
	eachMode(t, 4, func(t *testing.T, r *rig) {
		r.opts.AckWait = 3 * time.Second
		r.provision()
		hangs, err := sim.Open(sim.Options{Kernels: operator.HostKernels()}) // closing a hung device is not allowed
		check(r.TB, err)
		t.Cleanup(hangs.Hold())
		o := streams.Options{BatchPayloads: 5, Deadline: streams.Deadline{Min: time.Second, Max: 2 * time.Second}}
		run := r.prepareOn(o, hangs, hostDevice(t))
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
		if before := r.tally.stored(); before == 0 || before >= n {
			t.Errorf("%d of %d inputs have results of the device that works, want some", before, n)
		}
		r.run(hostDevice(t), streams.Options{}).finishAfter(n)
		r.wantAll(n, document)
	})
}
