package ingest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

func (r *rig) wantNothingAcked(n int) {
	r.Helper()
	info := r.consumerInfo()
	if info.NumAckPending != n || info.AckFloor.Stream != 0 || r.tally.stored() != 0 {
		r.Errorf("%d of %d inputs unacknowledged, floor at %d, %d said to be stored; want all unacknowledged",
			info.NumAckPending, n, info.AckFloor.Stream, r.tally.stored())
	}
}

// notStored is the message that the worker logs after a failed attempt.
const notStored = "results could not be stored"

func TestNothingIsAckedWhileTheResultStreamIsMissing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	config := r.StreamConfig("RESULTS")
	r.Delete("RESULTS")
	const n = 50
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{BatchPayloads: 10})
	r.Log.Await(t, notStored)
	until(t, "everything is delivered", func() bool { return r.consumerInfo().Delivered.Stream == n })
	r.wantNothingAcked(n)

	r.Create(config)
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
	r.wantSettled(n)
}

func TestNothingIsAckedWhileTheResultStreamIsFull(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	config := r.StreamConfig("RESULTS")
	config.MaxMsgs, config.Discard = 10, jetstream.DiscardNew
	r.Create(config)
	const n = 40
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.Log.Await(t, notStored)
	r.tally.awaitStored(t, 10)
	until(t, "everything is delivered", func() bool { return r.consumerInfo().Delivered.Stream == n })
	if info := r.consumerInfo(); info.NumAckPending < n-10 {
		t.Errorf("%d inputs unacknowledged with room for 10 results, want at least %d", info.NumAckPending, n-10)
	}

	config.MaxMsgs = -1
	r.Create(config)
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
	r.wantSettled(n)
}

// TestWaitingForAFullResultStreamIsNoReasonToGiveUp shows that deliveries that wait in the client are not
// dead-lettered. While results cannot be stored, the server redelivers them after every AckWait, although they were
// never tried.
func TestWaitingForAFullResultStreamIsNoReasonToGiveUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.MaxDeliver, r.opts.AckWait = 1, time.Second
	r.provision()
	config := r.StreamConfig("RESULTS")
	config.MaxMsgs, config.Discard = 10, jetstream.DiscardNew
	r.Create(config)
	const n = 2000
	// One pull request covers all of them.
	short := func(i int) []byte { return document(i)[:min(len(document(i)), 20)] }
	r.publish(n, short)
	run := r.run(hostDevice(t), streams.Options{Lanes: 1, BatchPayloads: 10})
	until(t, "some of what waits is delivered again", func() bool {
		return r.consumerInfo().Delivered.Consumer > n+200
	})

	config.MaxMsgs = -1
	r.Create(config)
	r.awaitFinished(n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, short)
	if given := r.tally.count(inflight.DeadLettered); given != 0 {
		t.Errorf("%d payloads were dead-lettered that had only waited", given)
	}
}

func TestLostPublishAcksArePublishedAgainAndStoredOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.loseAcks()
	const n = 300
	r.publish(n, document)
	run := r.prepare(hostDevice(t), streams.Options{BatchPayloads: 100})
	run.start()
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	// The number of lost acknowledgements depends on the batching of results.
	if r.tally.count(inflight.Duplicate) == 0 {
		t.Error("no result was stored already when it was published again")
	}
	r.wantAll(n, document)
	r.wantSettled(n)
}
