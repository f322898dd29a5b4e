package ingest

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/ingest/inflight"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

func (r *rig) withDevices(o streams.Options, devices ...device.Device) *running {
	r.Helper()
	run := r.prepare(devices[0], o)
	pipes := run.worker.pipes
	for _, d := range devices[1:] {
		pipes = append(pipes, r.pipeline(d, o))
	}
	w, err := NewWorker(r.Ctx(), run.nc, pipes, r.opts)
	if err != nil {
		r.Fatal(err)
	}
	run.worker = w
	return run
}

// TestWorkGoesToTheDeviceThatIsFree shows that a device without progress keeps only the payloads in its own buffers.
// A second device processes all other payloads.
func TestWorkGoesToTheDeviceThatIsFree(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n, perBatch = 300, 1
	stuck := simDevice(t)
	release := stuck.Hold()
	run := r.withDevices(streams.Options{BatchPayloads: perBatch}, stuck, hostDevice(t))
	held := run.worker.pipes[0].Slots() * perBatch
	run.start()
	r.publish(n, document)
	r.tally.awaitStored(t, n-held)
	release()
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.awaitFinished(n)
	r.wantAll(n, document)
}

func TestTwoDevicesShareTheWork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 2000
	seen := &records{}
	r.opts.Records = seen
	run := r.prepare(openHost(t, operator.HostKernels()), streams.Options{BatchPayloads: 5})
	other := r.pipeline(named{hostDevice(t), "other"}, streams.Options{BatchPayloads: 5})
	w, err := NewWorker(r.Ctx(), run.nc, append(run.worker.pipes, other), r.opts)
	if err != nil {
		t.Fatal(err)
	}
	run.worker = w
	run.start()
	r.publish(n, document)
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.awaitFinished(n)
	r.wantAll(n, document)
	if a, b := payloadsOf(seen.of("host")), payloadsOf(seen.of("other")); a == 0 || b == 0 || a+b < n {
		t.Errorf("one device computed %d payloads and the other %d, of %d", a, b, n)
	}
}

// named is a device with a given ID.
type named struct {
	device.Device
	id string
}

func (d named) Info() device.Info {
	info := d.Device.Info()
	info.ID = d.id
	return info
}

func payloadsOf(list []inflight.Record) (n int) {
	for _, r := range list {
		n += r.Payloads
	}
	return n
}

// TestASuspectTakesAnotherDeviceWithEachLevel shows that each quarantine level tries a payload on another device. The
// payload may not be the cause of the first device's loss.
func TestASuspectTakesAnotherDeviceWithEachLevel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	payload := someBytes(10, 20)
	r.publish(2, payload)
	c := r.Consumer(r.opts.Stream, r.opts.Consumer)
	next := func() jetstream.Msg {
		t.Helper()
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	once, twice := next(), next()
	nak(t, twice)
	twice = next()
	nak(t, once)
	nak(t, twice)

	seen := &records{}
	r.opts.Records = seen
	run := r.prepare(named{hostDevice(t), "0"}, streams.Options{})
	pipes := append(slices.Clone(run.worker.pipes), r.pipeline(named{hostDevice(t), "1"}, streams.Options{}))
	var err error
	if run.worker, err = NewWorker(r.Ctx(), run.nc, pipes, r.opts); err != nil {
		t.Fatal(err)
	}
	run.start()
	r.tally.awaitStored(t, 2)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(2, payload)
	for device, want := range []int{20, 10} { // payloads of level 2 and level 1
		if b := batchOf(t, seen.of(strconv.Itoa(device)), 1); b.Bytes != want || b.Payloads != 1 {
			t.Errorf("device %d computed %d payloads of %d bytes, want the one of %d", device, b.Payloads, b.Bytes, want)
		}
	}
}

func nak(t testing.TB, m jetstream.Msg) {
	t.Helper()
	if err := m.Nak(); err != nil {
		t.Fatal(err)
	}
}

// someBytes returns a function that makes payloads whose sizes cycle through sizes.
func someBytes(sizes ...int) func(i int) []byte {
	return func(i int) []byte {
		b := make([]byte, sizes[i%len(sizes)])
		for k := range b {
			b[k] = byte(i + k)
		}
		return b
	}
}

func TestLonePayloadDoesNotWaitForTheLinger(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.opts.Linger = 2 * patience
	seen := &records{}
	r.opts.Records = seen
	run := r.run(hostDevice(t), streams.Options{})
	r.publish(1, document)
	r.tally.await(t, inflight.Published, 1) // fails after half the linger time
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantAll(1, document)
	if b := seen.batch(t, 1); b.Payloads != 1 || b.Closed != streams.ClosedByLinger {
		t.Errorf("the batch has %d payloads, closed by %v, want 1 and linger", b.Payloads, b.Closed)
	}
}

// TestBusyLaneFillsItsBatch holds one payload on the only lane, so the next batch waits for more payloads. It checks
// which limit ends the wait.
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
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.provision()
			r.opts.Linger = c.linger
			sizes := append([]int{10}, c.sizes...)
			seen := &records{}
			d, w := watchedDevice(t)
			r.opts.Records = seen
			run := r.prepare(d, streams.Options{Lanes: 1, BatchBytes: 1000, BatchPayloads: 5})
			open := w.hold(t)
			r.publish(1, someBytes(sizes...))
			run.start()
			w.await(t, 1, 10)
			r.publishFrom(1, len(sizes), someBytes(sizes...))
			w.await(t, c.rows, c.bytes)
			open()
			r.tally.await(t, inflight.Published, len(sizes))
			if err := run.drain(); err != nil {
				t.Fatal(err)
			}
			if b := seen.batch(t, 2); b.Payloads != c.rows || b.Closed != c.want {
				t.Errorf("the second batch has %d payloads, closed by %v, want %d and %v", b.Payloads, b.Closed, c.rows, c.want)
			}
			r.wantAll(len(sizes), someBytes(sizes...))
			r.wantSettled(len(sizes))
		})
	}
}

func TestDrainClosesTheFillingBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.opts.Linger = 2 * patience
	seen := &records{}
	d, w := watchedDevice(t)
	r.opts.Records = seen
	run := r.prepare(d, streams.Options{Lanes: 1})
	open := w.hold(t)
	payload := someBytes(10, 20)
	r.publish(1, payload)
	run.start()
	w.await(t, 1, 10)
	r.publishFrom(1, 2, payload)
	until(t, "the second batch is begun", func() bool { return run.worker.Status().InHand == 2 })
	run.stop()
	w.await(t, 1, 20)
	open()
	if err := run.wait(); err != nil {
		t.Fatal(err)
	}
	if b := seen.batch(t, 2); b.Payloads != 1 || b.Closed != streams.ClosedByDrain {
		t.Errorf("the second batch has %d payloads, closed by %v, want 1 and drain", b.Payloads, b.Closed)
	}
	r.wantAll(2, payload)
	r.wantSettled(2)
}

func TestEmptyPayloads(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.publish(200, someBytes(0))
	run := r.run(hostDevice(t), streams.Options{BatchBytes: 1, BatchPayloads: 64})
	r.tally.await(t, inflight.Published, 200)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantAll(200, someBytes(0))
	r.wantSettled(200)
}
