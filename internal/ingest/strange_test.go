package ingest

import (
	"strings"
	"testing"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// TestSubjectTooLongForAResult has an input on the longest subject that a server accepts. A result on that subject would break
// the connection of this worker, and then of the next one.
func TestSubjectTooLongForAResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	subject := "ingest." + strings.Repeat("long.", 800) + strings.Repeat("x", 70)
	if err := r.NC.Publish(subject, []byte("payload")); err != nil {
		t.Fatal(err)
	}
	r.publish(1, document)
	run := r.run(hostDevice(t), streams.Config{})
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
