package ingest

import (
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/streams"
)

// TestMaxPayloadRaisedWhileRunning has one input of 3 MiB before 300 small ones. The server's limit was 1 MiB when
// the worker started. If the large input exceeds a batch, it becomes a dead letter, which the worker's outdated
// client would refuse.
func TestMaxPayloadRaisedWhileRunning(t *testing.T) {
	t.Parallel()
	const large, small = 3 << 20, 300
	for _, mode := range []string{"shared", "exclusive"} {
		for name, batchBytes := range map[string]int{"fits a batch": 4 << 20, "dead letter": 1 << 20} {
			t.Run(mode+", "+name, func(t *testing.T) {
				t.Parallel()
				s, reload := natstest.Reloading(t, 1<<20)
				r := newRigAt(t, s.ClientURL())
				r.opts.Exclusive, r.opts.Partitions = mode == "exclusive", 1
				// Messages in transit during a reconnect are redelivered after AckWait.
				r.opts.AckWait = 2 * time.Second
				r.provision()
				r.publish(1, document)
				run := r.run(hostDevice(t), streams.Options{BatchBytes: batchBytes})
				r.tally.awaitStored(t, 1)
				reload(8 << 20)
				r.NC = r.Connect(r.URL) // a client reads max_payload only when it connects
				r.JS = r.JetStream(r.NC)
				r.publishFrom(1, 2, someBytes(large))
				r.publishFrom(2, 2+small, document)
				found := 2 + small
				if batchBytes < large {
					found--
					r.tally.await(t, inflight.DeadLettered, 1)
				}
				r.tally.awaitStored(t, found)
				if err := run.drain(); err != nil {
					t.Fatalf("Run: %v", err)
				}
				if got := r.stored("results.>"); len(got) != found {
					t.Errorf("%d results, want %d", len(got), found)
				}
				if got := r.storedIn(deadStream, "deadletter.>"); len(got) != 2+small-found || len(got) > 0 && len(got[2]) != 1 {
					t.Errorf("%d dead letters, want %d", len(got), 2+small-found)
				}
			})
		}
	}
}
