package ingest

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/streams"
)

func TestConfirmedAcknowledgements(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.ConfirmAcks = true
	r.provision()
	const n = 1000
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{BatchPayloads: 300})
	r.tally.awaitStored(t, n)
	until(t, "every acknowledgement is confirmed", func() bool { return run.worker.Status().InHand == 0 })
	// No acknowledgement is in transit, so the test need not wait.
	if info := r.consumerInfo(); info.NumAckPending != 0 || info.AckFloor.Stream != n {
		t.Errorf("%d inputs unacknowledged, floor at %d; want all %d acknowledged", info.NumAckPending, info.AckFloor.Stream, n)
	}
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
	r.wantSettled(n)
}

// TestLostConfirmations shows that a lost confirmation does not fail an acknowledgement. The worker logs the loss and
// continues.
func TestLostConfirmations(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.ConfirmAcks = true
	r.provision()
	proxy := r.behindProxy()
	run := r.prepare(hostDevice(t), streams.Options{})
	const n = 20
	r.publish(n, document)
	// A confirmation is an empty answer to a request. All other answers have a body.
	proxy.Lose(func(subject string, body []byte) bool {
		return bytes.HasPrefix([]byte(subject), []byte("_INBOX.")) && len(bytes.TrimSpace(body)) == 0
	})
	run.start()
	r.Log.Await(t, "an acknowledgement was not confirmed")
	r.tally.awaitStored(t, n)
	r.awaitFinished(n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
}

// TestResultsInBatchesAndOneByOne shows that the worker stores the same results whether or not its result stream
// accepts batches.
func TestResultsInBatchesAndOneByOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		batches bool
		says    string
	}{{"batches", true, "one commit a batch"}, {"one by one", false, "one publish a result"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Create(jetstream.StreamConfig{
				Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, AllowBatchPublish: c.batches, Duplicates: time.Hour,
			})
			r.provision()
			const n = 2000
			r.publish(n, document)
			run := r.run(hostDevice(t), streams.Options{})
			r.tally.awaitStored(t, n)
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			if !r.Log.Has("results are stored with " + c.says) {
				t.Errorf("the log does not say %q", c.says)
			}
			r.wantAll(n, document)
			r.wantSettled(n)
		})
	}
}
