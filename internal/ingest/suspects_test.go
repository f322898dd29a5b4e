package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// marker is part of each payload that breaks a device.
var marker = []byte("\x00breaks the device\x00")

// poisoned returns a function that makes small payloads. The payloads at the indices in at break the device.
func poisoned(at ...int) func(i int) []byte {
	return func(i int) []byte {
		b := fmt.Appendf(nil, "payload %d", i)
		if slices.Contains(at, i) {
			b = append(b, marker...)
		}
		return b
	}
}

// supervise runs workers one after another, like a supervisor, until all n inputs are settled. It returns the number
// of workers that lost their device.
func (r *rig) supervise(n int, start func() *running) (losses int) {
	r.Helper()
	const limit = 100 // far more than allowed
	for ; losses < limit; losses++ {
		run := start()
		finished := r.awaitEnd(run, n)
		switch err := run.drain(); {
		case finished && err == nil:
			return losses
		case !errors.Is(err, device.ErrLost):
			r.Fatalf("Run = %v, want a lost device", err)
		case finished: // the worker died with the last unsettled input
			return losses + 1
		}
	}
	r.Fatalf("%d workers were lost, and the inputs are not settled", losses)
	return losses
}

// awaitEnd returns true once all n inputs are settled, or false if the worker ends before.
func (r *rig) awaitEnd(run *running, n int) (finished bool) {
	r.Helper()
	r.Until("every input is settled, or the worker has ended", func() bool {
		if len(run.done) > 0 {
			return true
		}
		info := r.consumerInfo()
		finished = info.NumPending == 0 && info.NumAckPending == 0 && info.AckFloor.Stream == uint64(n)
		return finished
	})
	return finished
}

// wantPoisonApart checks that every good payload of n has one result. Each payload in poison must have a dead letter
// that states the cause.
func (r *rig) wantPoisonApart(n int, payload func(i int) []byte, poison ...int) {
	r.Helper()
	found, dead := r.stored("results.>"), r.storedIn(deadStream, "deadletter.>")
	for i := range n {
		seq := uint64(i + 1)
		want := 1
		if slices.Contains(poison, i) {
			want = 0
		}
		if len(found[seq]) != want || len(dead[seq]) != 1-want {
			r.Fatalf("input %d has %d results and %d dead letters, want %d and %d", seq, len(found[seq]), len(dead[seq]), want, 1-want)
		}
	}
	if len(found) != n-len(poison) || len(dead) != len(poison) {
		r.Errorf("results of %d inputs and dead letters of %d, want %d and %d", len(found), len(dead), n-len(poison), len(poison))
	}
	for _, i := range poison {
		m := dead[uint64(i+1)][0]
		wantHeaders(r.TB, m.Headers(), map[string]string{results.HeaderReason: string(results.DeviceFault)})
		if !bytes.Equal(m.Data(), payload(i)) {
			r.Errorf("the dead letter of input %d is not its payload", i+1)
		}
	}
}

// TestPoisonIsFoundAndAllElseProcessed uses a device that any batch with a poisonous payload breaks. The device
// reports its loss before the process ends.
func TestPoisonIsFoundAndAllElseProcessed(t *testing.T) {
	t.Parallel()
	const n, batch = 1500, 128
	r := newRig(t)
	r.opts.MaxDeliver = 10
	r.provision()
	poison := []int{100, 101, 1400}
	payload := poisoned(poison...)
	r.publish(n, payload)
	losses := r.supervise(n, func() *running { return r.run(poisonedSim(r), streams.Options{BatchPayloads: batch}) })
	r.wantPoisonApart(n, payload, poison...)
	// one is the number of losses for one payload: when it is new, at each level, and alone again.
	one := quarantine.Levels{Full: batch, Limit: 10}.AloneLevel() + quarantine.LoneRuns
	t.Logf("%d losses for %d payloads", losses, len(poison))
	if losses < quarantine.LoneRuns+1 || losses > one*len(poison) {
		t.Errorf("%d devices were lost, want %d to %d", losses, quarantine.LoneRuns+1, one*len(poison))
	}
}

func poisonedSim(r *rig) device.Device {
	return simDevice(r.TB, sim.Fault{Kind: sim.DeviceLoss, Marker: marker})
}

// Without these tests, the code that they cover could be removed unnoticed.

// wantRunning fails the test if a worker ends instead of waiting for an event that doesn't happen.
func (run *running) wantRunning(waitsFor string) {
	run.t.Helper()
	select {
	case err := <-run.done:
		run.done <- err
		run.t.Errorf("the worker has ended (%v), and did not wait for %s", err, waitsFor)
	case <-time.After(500 * time.Millisecond): // no event may occur in that time
	}
}

// TestDrainWaitsForBatchesInFlight holds the device until the worker was stopped and has stopped receiving inputs.
// The batches on the device are finished, and none of their deliveries is given back.
func TestDrainWaitsForBatchesInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 20
	d, w := watchedDevice(t)
	open := w.hold(t)
	payload := someBytes(10)
	r.publish(n, payload)
	run := r.prepare(d, streams.Options{Lanes: 1, BatchPayloads: n})
	run.startAndReceive(n)
	w.awaitAny(t)
	run.stop()
	run.wantRunning("the batch on the device")
	open()
	if err := run.wait(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, payload)
	r.wantSettled(n)
	if back := r.tally.count(inflight.Nacked); back != 0 {
		t.Errorf("%d given back, want none", back)
	}
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
	t.Parallel()
	r := newRig(t)
	r.provision()
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
	if err := run.wait(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if letters := r.storedIn(deadStream, "deadletter.>"); len(letters) != 1 {
		t.Errorf("%d dead letters, want 1", len(letters))
	}
}

// TestLongBatchIsKeptAliveWithExclusiveDelivery holds a batch on the device for several times AckWait.
func TestLongBatchIsKeptAliveWithExclusiveDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.Exclusive, r.opts.Partitions, r.opts.AckWait = true, 1, 3*time.Second
	r.provision()
	heard := make(chan *nats.Msg, 1<<12)
	if _, err := r.NC.ChanSubscribe("$JS.ACK.INGEST."+topology.PartitionConsumer(r.opts.Consumer, 0)+".>", heard); err != nil {
		t.Fatal(err)
	}
	if err := r.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	d, w := watchedDevice(t)
	open := w.hold(t)
	payload := someBytes(10)
	r.publish(1, payload)
	run := r.run(d, streams.Options{Lanes: 1})
	t.Cleanup(open) // runs before the worker is awaited
	w.await(t, 1, 10)
	r.awaitProgress(heard, 6) // one per third of AckWait
	c := r.Consumer(r.opts.Stream, topology.PartitionConsumer(r.opts.Consumer, 0))
	if again := c.CachedInfo().NumRedelivered; again != 0 || r.tally.redelivered() != 0 {
		t.Errorf("an input that is worked on was delivered again: %d by the server, %d seen by the worker", again, r.tally.redelivered())
	}
	open()
	r.tally.awaitStored(t, 1)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(1, payload)
}

// TestTheLastAcknowledgementComesBeforeTheHandover shows that a worker acknowledges its last inputs before it unpins
// itself. Otherwise they would be redelivered to the next worker.
func TestTheLastAcknowledgementComesBeforeTheHandover(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	heard := make(chan *nats.Msg, 1<<12)
	for _, subject := range []string{"$JS.ACK.INGEST.>", "$JS.API.CONSUMER.UNPIN.>"} {
		if _, err := r.NC.ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	const n = 20
	run := r.run(hostDevice(t), streams.Options{})
	r.publish(n, document)
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	confirmed := false
	for deadline := time.After(patience); ; {
		select {
		case m := <-heard:
			switch {
			case string(m.Data) == "-NAK":
				t.Error("an input is handed over: its acknowledgement was not there yet")
			case strings.HasPrefix(m.Subject, "$JS.ACK."):
				tokens := strings.Split(m.Subject, ".")
				// The last acknowledgement requests an answer.
				confirmed = confirmed || m.Reply != "" && tokens[5] == "20"
			default:
				if !confirmed {
					t.Error("the partition was handed over before the server had confirmed the last acknowledgement")
				}
				return
			}
		case <-deadline:
			t.Fatal("the partition was not handed over")
		}
	}
}
