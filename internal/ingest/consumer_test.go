package ingest

import (
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// TestConsumersOwnBoundsAreKept shows that pulls stay within the consumer's limits. The server silently refuses a
// larger pull.
func TestConsumersOwnBoundsAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	c := r.Consumer(r.opts.Stream, r.opts.Consumer)
	settings := c.CachedInfo().Config
	settings.MaxRequestBatch, settings.MaxRequestMaxBytes, settings.MaxRequestExpires = 7, 64<<10, 3*time.Second
	if _, err := r.JS.UpdateConsumer(r.Ctx(), r.opts.Stream, settings); err != nil {
		t.Fatal(err)
	}
	const n = 50
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.await(t, inflight.Published, n)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantAll(n, document)
}

func TestPullGoesOnWhenTheConsumerIsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.publish(10, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, 10)
	r.awaitFinished(10)
	if err := r.JS.DeleteConsumer(r.Ctx(), r.opts.Stream, r.opts.Consumer); err != nil {
		t.Fatal(err)
	}
	r.Log.Await(t, "the consumer is gone")
	r.publishFrom(10, 20, document)
	r.provision() // a new consumer, which starts at the first input
	r.tally.awaitAcknowledged(t, 30)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(20, document)
}
