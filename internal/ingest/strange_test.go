package ingest

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// TestSubjectTooLongForAResult publishes an input on the longest subject that a server accepts. A result on that
// subject would break the connection of every worker that tries to store it.
func TestSubjectTooLongForAResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	subject := "ingest." + strings.Repeat("long.", 800) + strings.Repeat("x", 70)
	if err := r.NC.Publish(subject, []byte("payload")); err != nil {
		t.Fatal(err)
	}
	r.publish(1, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.await(t, inflight.DeadLettered, 1)
	r.tally.await(t, inflight.Published, 1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	m := r.deadLetter(deadStream, 1)
	if string(m.Data()) != "payload" || len(m.Subject()) > publisher.MaxSubject || !strings.HasPrefix(m.Subject(), "deadletter.long.") {
		t.Errorf("the dead letter has %q and is on a subject of %d bytes", m.Data(), len(m.Subject()))
	}
	wantHeaders(t, m.Headers(), map[string]string{results.HeaderReason: "too_large", results.HeaderSubject: subject})
	r.wantSettled(2)
}

// TestDeleteMarkersAreNoInputs shows that the server's marker in place of an expired message has no result and is
// acknowledged.
func TestDeleteMarkersAreNoInputs(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"shared": 0, "exclusive": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = partitions > 0, partitions
			r.opts.Kept.AskedEverything = true // a second worker must find the last marker
			r.provision()
			marker := nats.Header{"Nats-Marker-Reason": {"MaxAge"}}
			r.publishMsg(marker, nil)
			r.publishMsg(nil, nil)
			r.publishMsg(marker, []byte("a publisher's header"))
			r.publishMsg(marker, nil)
			consumer := r.opts.Consumer
			if partitions > 0 {
				consumer = topology.PartitionConsumer(consumer, 0)
			}
			acknowledged := func() bool { return r.ConsumerInfo(r.opts.Stream, consumer).AckFloor.Stream == 4 }
			run := r.run(hostDevice(t), streams.Options{})
			r.tally.awaitStored(t, 2)
			r.Until("the markers are acknowledged", acknowledged)
			if err := run.drain(); err != nil {
				t.Fatal(err)
			}
			if got := r.stored("results.>"); len(got) != 2 || len(got[2]) != 1 || len(got[3]) != 1 {
				t.Errorf("results of the inputs %v, want 2 and 3", got)
			}
			run = r.run(hostDevice(t), streams.Options{})
			r.publishMsg(nil, []byte("more"))
			r.tally.awaitStored(t, 3)
			if err := run.drain(); err != nil {
				t.Fatal(err)
			}
			if r.Log.Has("more inputs are acknowledged than the last commit marker covers") {
				t.Error("the acknowledgement of a delete marker counts as that of an input without a result")
			}
		})
	}
}
