package ingest

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/streams"
)

// settlements subscribes to the workers' acknowledgement messages. "+WPI" reports work in progress.
func (r *rig) settlements() <-chan *nats.Msg {
	r.Helper()
	heard := make(chan *nats.Msg, 1<<16)
	if _, err := r.NC.ChanSubscribe("$JS.ACK."+r.opts.Stream+"."+r.opts.Consumer+".>", heard); err != nil {
		r.Fatal(err)
	}
	if err := r.NC.Flush(); err != nil {
		r.Fatal(err)
	}
	return heard
}

// awaitProgress returns once the server has received n progress messages for an input.
func (r *rig) awaitProgress(heard <-chan *nats.Msg, n int) {
	r.Helper()
	deadline := time.After(patience)
	for told := 0; told < n; {
		select {
		case m := <-heard:
			if strings.HasPrefix(string(m.Data), "+WPI") {
				told++
			}
		case <-deadline:
			r.Fatalf("told of progress %d times in %v, want %d", told, patience, n)
		}
	}
}

// TestLongBatchIsKeptAlive holds a batch on the device for several times AckWait. The worker must report progress every third of
// AckWait.
func TestLongBatchIsKeptAlive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.AckWait = time.Second
	r.provision()
	heard := r.settlements()
	d, w := watchedDevice(t)
	run := r.prepare(d, streams.Options{Lanes: 1})
	open := w.hold(t)
	payload := someBytes(10)
	r.publish(1, payload)
	run.start()
	w.await(t, 1, 10)
	r.awaitProgress(heard, 5)
	if r.tally.redelivered() != 0 || r.consumerInfo().NumRedelivered != 0 {
		t.Errorf("an input that is worked on was delivered again: %d seen by the worker, %d by the server",
			r.tally.redelivered(), r.consumerInfo().NumRedelivered)
	}
	open()
	r.tally.awaitStored(t, 1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantSettled(1)
	r.wantAll(1, payload)
}

// TestResultsThatWaitAreKeptAlive delays the publishing of a batch's results for several times AckWait.
func TestResultsThatWaitAreKeptAlive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.AckWait = time.Second
	r.provision()
	heard := r.settlements()
	config := r.StreamConfig("RESULTS")
	r.Delete("RESULTS")
	payload := someBytes(10)
	r.publish(1, payload)
	run := r.run(hostDevice(t), streams.Options{})
	r.awaitProgress(heard, 5)
	r.Create(config)
	r.tally.awaitStored(t, 1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantSettled(1)
	r.wantAll(1, payload)
}
