package ingest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

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
