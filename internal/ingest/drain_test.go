package ingest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/device"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// In these tests AckWait is minutes. If a stopping worker neither settles nor gives back an input, the next worker
// does not receive it in time, and the test fails.

func wantError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("Run = %v, want %v", err, want)
	}
}

// drainTimeout returns a change that sets DrainTimeout.
func drainTimeout(d time.Duration) func(o *Options) { return func(o *Options) { o.DrainTimeout = d } }

// TestDrainFinishesWhatHasCome holds the device until the worker was stopped and has stopped receiving inputs. The
// received inputs are all computed, once.
func TestDrainFinishesWhatHasCome(t *testing.T) {
	r := provisioned(t)
	const n = 600 // one pull gets all inputs
	r.publish(n, document)
	d, w := watchedDevice(t)
	run := r.prepare(d, streams.Options{BatchPayloads: 50, BatchBytes: 10000})
	open := w.hold(t)
	run.startAndReceive(n)
	w.awaitAny(t)
	run.stop()
	run.wantRunning("the batches on the device")
	open()
	run.finish()
	r.wantAll(n, document)
	r.wantSettled(n)
	if back, again := r.tally.count(inflight.Nacked), r.tally.count(inflight.Duplicate); back != 0 || again != 0 {
		t.Errorf("%d given back and %d computed twice, want none", back, again)
	}
}

// TestDrainOutOfTimeLeavesTheRestToTheNextWorker stops a worker whose device computes nothing.
func TestDrainOutOfTimeLeavesTheRestToTheNextWorker(t *testing.T) {
	r := provisioned(t, drainTimeout(100*time.Millisecond))
	const n = 600
	r.publish(n, document)
	d, w := watchedDevice(t)
	first := r.prepare(d, streams.Options{BatchPayloads: 50, BatchBytes: 10000})
	open := w.hold(t)
	first.startAndReceive(n)
	w.awaitAny(t)
	if s := first.worker.Status(); !s.Connected || s.InHand == 0 || s.AckWait != r.opts.AckWait {
		t.Errorf("with a batch on the device the status is %+v", s)
	}
	first.finish()
	open()
	if back := r.tally.count(inflight.Nacked); back != n {
		t.Errorf("%d given back, want all %d", back, n)
	}
	r.process(hostDevice(t), streams.Options{})
	r.wantAll(n, document)
	if r.tally.redelivered() != n {
		t.Errorf("%d redelivered, want the %d that were given back", r.tally.redelivered(), n)
	}
}

// TestDrainGivesBackWhatCannotBePublished lets the drain time out while results wait for the result stream. They are
// the results of batches, or of the halves of a failed batch.
func TestDrainGivesBackWhatCannotBePublished(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    streams.Options
		bad  []int // unfit payloads
		says string
	}{
		"batches":                   {streams.Options{BatchPayloads: 10, Lanes: 1}, nil, notStored},
		"the halves of a bad batch": {streams.Options{Lanes: 1}, []int{30}, "looking for the payload to blame"},
	} {
		t.Run(name, func(t *testing.T) {
			r := provisioned(t, drainTimeout(100*time.Millisecond))
			restore := r.remove("RESULTS")
			const n = 60
			payload := unfitAt(c.bad...)
			r.publish(n, payload)
			first := r.prepare(openHost(t, pickyKernels()), c.o)
			first.startAndReceive(n)
			r.Log.Await(t, c.says)
			r.Log.Await(t, notStored)
			first.finish()
			if r.tally.stored() != 0 || r.tally.count(inflight.Nacked) == 0 {
				t.Errorf("%d acknowledged and %d given back, want none and some", r.tally.stored(), r.tally.count(inflight.Nacked))
			}
			restore()
			r.process(openHost(t, pickyKernels()), streams.Options{})
			r.wantApart(n, payload, map[string]string{results.HeaderReason: string(results.OperatorError)}, c.bad...)
		})
	}
}

// cutOff starts a worker that holds one payload on its device, and cuts off its connection. open lets the device
// compute the payload.
func (r *rig) cutOff(t *testing.T) (run *running, proxy *natstest.Proxy, open func()) {
	t.Helper()
	proxy = r.behindProxy()
	d, w := watchedDevice(t)
	run = r.prepare(d, streams.Options{Lanes: 1})
	open = w.hold(t)
	r.publish(1, someBytes(10))
	run.start()
	w.await(t, 1, 10)
	proxy.Refuse(true)
	until(t, "disconnected", func() bool { return !run.nc.IsConnected() })
	return run, proxy, open
}

func TestDrainWhileDisconnectedEnds(t *testing.T) {
	r := provisioned(t, drainTimeout(200*time.Millisecond))
	run, _, open := r.cutOff(t)
	open()
	err := run.drain()
	if err == nil || !strings.Contains(err.Error(), "may not have reached the server") {
		t.Errorf("Run = %v, want that acknowledgements may be lost", err)
	}
	if r.tally.stored() != 0 {
		t.Errorf("%d inputs acknowledged with no connection", r.tally.stored())
	}
}

// TestDrainWithoutAServerKeepsWhatItHas shows that a draining worker without a server keeps its inputs, because the
// server may return.
func TestDrainWithoutAServerKeepsWhatItHas(t *testing.T) {
	r := provisioned(t, drainTimeout(patience))
	run, proxy, open := r.cutOff(t)
	run.stop()
	open()
	run.wantRunning("the server, with a result in hand") // longer than idleEvery * idleChecks
	proxy.Refuse(false)
	run.finish()
	r.awaitSettled()
	r.wantAll(1, someBytes(10))
}

// TestDrainWithoutAServerAndWithoutWorkEndsAtOnce fails if the drain waits for its timeout, which is longer than
// patience.
func TestDrainWithoutAServerAndWithoutWorkEndsAtOnce(t *testing.T) {
	eachMode(t, 2, func(t *testing.T, r *rig) {
		r.opts.DrainTimeout = 10 * patience
		r.provision()
		proxy := r.behindProxy()
		run := r.run(hostDevice(t), streams.Options{})
		proxy.Refuse(true)
		until(t, "disconnected", func() bool { return !run.nc.IsConnected() })
		run.finish()
	})
}

// heldObserver blocks reports of dead letters until it is released.
type heldObserver struct {
	*tally
	reached, free chan struct{}
	once          sync.Once
}

func (o *heldObserver) Settled(of inflight.Outcome, in, out int, latency, headroom time.Duration) {
	if of == inflight.DeadLettered {
		o.once.Do(func() { close(o.reached) })
		<-o.free
	}
	o.tally.Settled(of, in, out, latency, headroom)
}

// TestDrainWaitsForDeadLetters stops the worker while a dead letter is not finished.
func TestDrainWaitsForDeadLetters(t *testing.T) {
	r := provisioned(t)
	held := &heldObserver{tally: r.tally, reached: make(chan struct{}), free: make(chan struct{})}
	r.opts.Observer = held
	letGo := sync.OnceFunc(func() { close(held.free) })
	t.Cleanup(letGo)
	r.publish(1, someBytes(2000))
	run := r.run(hostDevice(t), streams.Options{BatchBytes: 1000})
	t.Cleanup(letGo) // runs before the worker is awaited
	select {
	case <-held.reached:
	case <-time.After(patience):
		t.Fatal("no dead letter")
	}
	run.stop()
	run.wantRunning("the dead letter")
	letGo()
	run.finish()
	r.deadLetter(1)
}

func TestAWorkerRunsOnce(t *testing.T) {
	r := provisioned(t)
	run := r.run(hostDevice(t), streams.Options{})
	run.finish()
	if err := run.worker.Run(t.Context()); err == nil {
		t.Error("a second Run gave no error")
	}
	if _, err := NewWorker(r.Ctx(), r.NC, nil, r.opts); err == nil {
		t.Error("a worker without pipelines gave no error")
	}
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

// TestRunLeavesNoGoroutines is not parallel, so every goroutine that it finds belongs to its own worker.
func TestRunLeavesNoGoroutines(t *testing.T) {
	r := newRig(t)
	r.provision()
	r.publish(500, document)
	run := r.run(hostDevice(t), streams.Options{})
	run.finishAfter(500)
	// A goroutine may still be exiting after its WaitGroup has been released.
	until(t, "the worker's goroutines are gone", func() bool {
		return !goroutineIn("millrace/internal/ingest.(*") && !goroutineIn("millrace/internal/ingest/lease.")
	})
	run.nc.Close()
	r.NC.Close()
	until(t, "the client's goroutines are gone", func() bool { return !goroutineIn("nats.go/jetstream.") })
}

// goroutineIn reports whether a goroutine, except the caller's, has text in its stack.
func goroutineIn(text string) bool {
	all := make([]byte, 1<<22)
	all = all[:runtime.Stack(all, true)]
	_, others, _ := strings.Cut(string(all), "\n\n")
	return strings.Contains(others, text)
}

// TestALostDeviceIsNotWaitedFor loses a device while the worker holds a quarantined payload. No device is left for
// its retry, so the worker must not wait.
func TestALostDeviceIsNotWaitedFor(t *testing.T) {
	r := provisioned(t, drainTimeout(time.Hour))
	d := simDevice(t, lossOf(1))
	release := d.Hold()
	run := r.run(d, streams.Options{BatchPayloads: 4})
	until(t, "the worker pulls", func() bool { return r.consumerInfo().NumWaiting > 0 })
	pulling := r.consumerInfo().NumWaiting
	mine, err := r.Consumer(r.opts.Stream, r.opts.Consumer).Fetch(1) // one delivery for another client
	check(r.TB, err)
	until(t, "another client pulls too", func() bool { return r.consumerInfo().NumWaiting > pulling })
	r.publish(60, document)
	suspect := <-mine.Messages()
	until(t, "fresh payloads are in hand", func() bool { return run.worker.Status().InHand > 0 })
	check(t, suspect.Nak())
	until(t, "the quarantined payload came", func() bool { return r.tally.redelivered() == 1 })
	release()
	wantError(t, run.wait(), device.ErrLost)
}
