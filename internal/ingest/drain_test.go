package ingest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// In these tests AckWait is minutes. If a stopping worker neither settles nor gives back an input, the next worker
// does not receive it in time, and the test fails.

func TestDrainUnderLoadFinishesWhatHasCome(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 600 // one pull gets all inputs
	r.publish(n, document)
	d, w := watchedDevice(t)
	open := w.hold(t)
	first := r.prepare(d, streams.Options{BatchPayloads: 50, BatchBytes: 10000})
	first.startAndReceive(n)
	open()
	r.tally.awaitStored(t, 200)
	if err := first.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if s := first.worker.Status(); s.Stage != Stopped || s.InHand != 0 {
		t.Errorf("after the drain the worker is %v with %d batches in hand", s.Stage, s.InHand)
	}
	r.awaitFinished(n)
	r.wantAll(n, document)
	if back, again := r.tally.count(inflight.Nacked), r.tally.count(inflight.Duplicate); back != 0 || again != 0 {
		t.Errorf("%d given back and %d computed twice, want none", back, again)
	}
}

func TestDrainOutOfTimeLeavesTheRestToTheNextWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.opts.DrainTimeout = 100 * time.Millisecond
	const n = 600
	r.publish(n, document)
	d, w := watchedDevice(t)
	open := w.hold(t)
	first := r.prepare(d, streams.Options{BatchPayloads: 50, BatchBytes: 10000})
	first.startAndReceive(n)
	if err := first.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	open()
	if back := r.tally.count(inflight.Nacked); back != n {
		t.Errorf("%d given back, want all %d", back, n)
	}
	second := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, n)
	if err := second.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.awaitFinished(n)
	r.wantAll(n, document)
	if back := r.tally.count(inflight.Nacked); r.tally.redelivered() != back {
		t.Errorf("%d redelivered, want the %d that were given back", r.tally.redelivered(), back)
	}
}

func TestDrainGivesBackWhatCannotBePublished(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	config := r.StreamConfig("RESULTS")
	r.Delete("RESULTS")
	r.opts.DrainTimeout = 100 * time.Millisecond
	const n = 60
	r.publish(n, document)
	first := r.prepare(hostDevice(t), streams.Options{BatchPayloads: 10, Lanes: 1})
	first.startAndReceive(n)
	r.Log.Await(t, notStored)
	if err := first.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if r.tally.stored() != 0 || r.tally.count(inflight.Nacked) == 0 {
		t.Errorf("%d acknowledged and %d given back, want none and some", r.tally.stored(), r.tally.count(inflight.Nacked))
	}
	r.Create(config)
	second := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, n)
	if err := second.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.awaitFinished(n)
	r.wantAll(n, document)
}

func TestDrainGivesBackWhatTheDeviceHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.opts.DrainTimeout = 100 * time.Millisecond
	d, w := watchedDevice(t)
	first := r.prepare(d, streams.Options{Lanes: 1})
	open := w.hold(t)
	payload := someBytes(10, 20, 30)
	r.publish(1, payload)
	first.start()
	w.await(t, 1, 10)
	if s := first.worker.Status(); s.Stage != Running || !s.Connected || s.InHand != 1 || s.AckWait != r.opts.AckWait {
		t.Errorf("with a batch on the device the status is %+v", s)
	}
	if err := first.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if n := r.tally.count(inflight.Nacked); n != 1 {
		t.Errorf("%d given back, want 1", n)
	}
	if s := first.worker.Status(); s.InHand != 0 {
		t.Errorf("%d batches in hand after the end", s.InHand)
	}
	open()
	second := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, 1)
	if err := second.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.awaitFinished(1)
	r.wantAll(1, payload)
}

func TestDrainWhileDisconnectedEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	proxy := r.behindProxy()
	r.opts.DrainTimeout = 200 * time.Millisecond
	d, w := watchedDevice(t)
	run := r.prepare(d, streams.Options{Lanes: 1})
	open := w.hold(t)
	payload := someBytes(10)
	r.publish(1, payload)
	run.start()
	w.await(t, 1, 10)
	proxy.Refuse(true)
	until(t, "disconnected", func() bool { return !run.nc.IsConnected() })
	open()
	err := run.drain()
	if err == nil || !strings.Contains(err.Error(), "may not have reached the server") {
		t.Errorf("Run = %v, want that acknowledgements may be lost", err)
	}
	if r.tally.stored() != 0 {
		t.Errorf("%d inputs acknowledged with no connection", r.tally.stored())
	}
}

func TestClosedConnectionEndsTheWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	d, w := watchedDevice(t)
	r.opts.DrainTimeout = 10 * patience // longer than the wait before a failed attempt is repeated
	run := r.prepare(d, streams.Options{Lanes: 1})
	open := w.hold(t)
	r.publish(1, someBytes(10))
	run.start()
	w.await(t, 1, 10)
	run.nc.Close()
	open()
	err := run.wait()
	if err == nil || !strings.Contains(err.Error(), "connection closed") {
		t.Errorf("Run = %v, want that the connection is closed", err)
	}
}

func TestAWorkerRunsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	run := r.run(hostDevice(t), streams.Options{})
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	if err := run.worker.Run(t.Context()); err == nil {
		t.Error("a second Run gave no error")
	}
	if _, err := NewWorker(r.Ctx(), r.NC, nil, r.opts); err == nil {
		t.Error("a worker without pipelines gave no error")
	}
}

// TestRunLeavesNoGoroutines is not parallel, so every goroutine that it finds belongs to its own worker.
func TestRunLeavesNoGoroutines(t *testing.T) {
	r := newRig(t)
	r.provision()
	r.publish(500, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, 500)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	// A goroutine may still be exiting after its WaitGroup has been released.
	until(t, "the worker's goroutines are gone", func() bool {
		return len(goroutines("millrace/internal/ingest.(*"))+len(goroutines("millrace/internal/ingest/shared.")) == 0
	})
	run.nc.Close()
	r.NC.Close()
	until(t, "the client's goroutines are gone", func() bool { return len(goroutines("nats.go/jetstream.")) == 0 })
}

func goroutines(text string) (found []string) {
	all := make([]byte, 1<<22)
	all = all[:runtime.Stack(all, true)]
	for _, stack := range strings.Split(string(all), "\n\n")[1:] {
		if strings.Contains(stack, text) {
			found = append(found, stack)
		}
	}
	return found
}

func TestConsumerThatIsNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := NewWorker(r.Ctx(), r.NC, []*streams.Pipeline{r.pipeline(hostDevice(t), streams.Options{})}, r.opts)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("consumer %q on stream %q", r.opts.Consumer, r.opts.Stream)) {
		t.Errorf("NewWorker = %v, want which consumer is missing", err)
	}
	if errors.Is(err, nats.ErrTimeout) {
		t.Errorf("NewWorker waited for a consumer that the server says is not there: %v", err)
	}
}

// TestDrainWithoutAServerAndWithoutWorkEndsAtOnce fails if the drain waits for its timeout, which is longer than
// patience.
func TestDrainWithoutAServerAndWithoutWorkEndsAtOnce(t *testing.T) {
	t.Parallel()
	for name, exclusive := range map[string]bool{"shared": false, "exclusive": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = exclusive, 2
			r.provision()
			proxy := r.behindProxy()
			r.opts.DrainTimeout = 10 * patience
			run := r.prepare(hostDevice(t), streams.Options{})
			run.start()
			proxy.Refuse(true)
			until(t, "disconnected", func() bool { return !run.nc.IsConnected() })
			if err := run.drain(); err != nil {
				t.Errorf("Run = %v, want nil: the worker had nothing to acknowledge", err)
			}
		})
	}
}

// TestDrainWithoutAServerKeepsWhatItHas shows that a draining worker without a server keeps its inputs, because the
// server may return.
func TestDrainWithoutAServerKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	proxy := r.behindProxy()
	r.opts.DrainTimeout = patience
	d, w := watchedDevice(t)
	run := r.prepare(d, streams.Options{Lanes: 1})
	open := w.hold(t)
	payload := someBytes(10)
	r.publish(1, payload)
	run.start()
	w.await(t, 1, 10)
	proxy.Refuse(true)
	until(t, "disconnected", func() bool { return !run.nc.IsConnected() })
	drained := make(chan error, 1)
	go func() { drained <- run.drain() }()
	until(t, "draining", func() bool { return run.worker.Status().Stage == Draining })
	open()
	select {
	case err := <-drained:
		t.Fatalf("it ended with a result in hand: %v", err)
	case <-time.After(idleEvery * idleChecks * 3):
	}
	proxy.Refuse(false)
	if err := <-drained; err != nil {
		t.Errorf("Run = %v", err)
	}
	r.awaitFinished(1)
	r.wantAll(1, payload)
}
