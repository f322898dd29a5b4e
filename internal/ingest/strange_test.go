package ingest

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/store"
	"millrace/internal/streams"
)

// TestSubjectTooLongForAResult has an input on the longest subject that a server takes. A result on it would cost the
// worker its connection, and the next worker too.
func TestSubjectTooLongForAResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	subject := "ingest." + strings.Repeat("long.", 800) + strings.Repeat("x", 70)
	if err := r.nc.Publish(subject, []byte("payload")); err != nil {
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
	if string(m.Data()) != "payload" || len(m.Subject()) > store.MaxSubject || !strings.HasPrefix(m.Subject(), "deadletter.long.") {
		t.Errorf("the dead letter has %q and is on a subject of %d bytes", m.Data(), len(m.Subject()))
	}
	wantHeaders(t, m.Headers(), map[string]string{HeaderReason: "too_large", HeaderSubject: subject})
	r.wantSettled(2)
}

func TestShortSubject(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("x", store.MaxSubject)
	for subject, want := range map[string]string{
		"a.b.": "a.b.", whole: whole, whole + "y": whole, whole[1:] + ".z": whole[1:],
	} {
		if got := shortSubject(subject); got != want {
			t.Errorf("shortSubject of %d bytes has %d, want %d", len(subject), len(got), len(want))
		}
	}
}

// TestHeadersThatPassThroughCanBeWritten compares with the client, to which an invalid header has no size.
func TestHeadersThatPassThroughCanBeWritten(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		key := "a" + string([]byte{byte(c)})
		_, passes := passThrough(nats.Header{key: {"b"}}, 0)[key]
		if writes := (&nats.Msg{Header: nats.Header{key: nil}}).Size() > 0; passes != writes {
			t.Errorf("header %q passes through: %v; the client writes it: %v", key, passes, writes)
		}
	}
	if got := passThrough(nats.Header{"": {"b"}}, 0); len(got) != 0 {
		t.Errorf("a header without a key passes through: %v", got)
	}
}
