package ingest

import (
	"testing"
	"time"

	"millrace/internal/streams"
)

// In these tests acknowledgements are lost with connections. Delivery is at least once, so the server redelivers
// their inputs after AckWait. Each result is stored only once.

func TestServerRestartUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.AckWait = 2 * time.Second
	r.provision()
	d, w := watchedDevice(t)
	const n = 1000
	r.publish(n, document)
	r.opts.publishTimeout = time.Second
	run := r.prepare(d, streams.Options{BatchPayloads: 50})
	run.start()
	r.tally.awaitStored(t, 100)
	r.Restart()
	r.tally.awaitFunc(t, "connections", 1, r.tally.reconnects)

	// Repeat with batches on the device and no batch being published.
	open := w.hold(t)
	r.publishFrom(n, n+100, document)
	r.Restart()
	open()
	r.tally.awaitFunc(t, "connections", 2, r.tally.reconnects)
	r.tally.awaitStored(t, n+100)
	r.awaitFinished(n + 100)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n+100, document)
}

func TestConnectionCutUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.AckWait = 2 * time.Second
	r.provision()
	proxy := r.behindProxy()
	const n = 2000
	r.publish(n, document)
	r.opts.publishTimeout = time.Second
	run := r.prepare(hostDevice(t), streams.Options{BatchPayloads: 50})
	run.start()
	for cut := range 3 {
		r.tally.awaitStored(t, 200*(cut+1))
		proxy.Cut()
		r.tally.awaitFunc(t, "connections", cut+1, r.tally.reconnects)
	}
	r.tally.awaitStored(t, n)
	r.awaitFinished(n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
}
