package ingest

import (
	"fmt"
	"strconv"
	"testing"

	"millrace/internal/corpus"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

func document(i int) []byte { return corpus.Text(uint64(i)+1, (i*997)%1000) }

func TestEveryPayloadComesBackOnceAndRight(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 1500
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.await(t, inflight.Published, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
	r.wantSettled(n)
}

func TestResultHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.publish(1, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.await(t, inflight.Published, 1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	m := r.stored("results.>")[1][0]
	for header, want := range map[string]string{
		results.HeaderStream: "INGEST", results.HeaderSequence: "1", results.HeaderSubject: "ingest.web.0",
		results.HeaderOperators: "crc32c,minhash?k=4&hashes=4&seed=1",
		"Nats-Msg-Id":           fmt.Sprintf("INGEST:1:%d", r.storedAt(1).UnixNano()), "Trace": strconv.Itoa(0),
		"Content-Type": "application/json", "Content-Encoding": "",
	} {
		if got := m.Headers().Get(header); got != want {
			t.Errorf("header %s is %q, want %q", header, got, want)
		}
	}
}
