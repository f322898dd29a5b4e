package ingest

import (
	"slices"
	"strconv"
	"testing"

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
