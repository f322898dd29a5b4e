package ingest

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// TestPayloadAsLargeAsTheServerTakesIsNotLost uses payloads that leave no space for all headers of a dead letter, or
// only for Millrace's own headers.
func TestPayloadAsLargeAsTheServerTakesIsNotLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	fill := func(header nats.Header, left int) []byte {
		var lines int
		if header != nil {
			lines = len("NATS/1.0\r\n\r\n")
			for key, values := range header {
				lines += len(key) + len(": \r\n") + len(values[0])
			}
		}
		return bytes.Repeat([]byte{'x'}, embedded.MaxPayload-lines-left)
	}
	own := nats.Header{"Trace": {string(bytes.Repeat([]byte{'t'}, 2000))}}
	payloads := [][]byte{fill(nil, 0), fill(nil, 100), fill(own, 0)}
	for i, payload := range payloads {
		var h nats.Header
		if i == 2 {
			h = own
		}
		r.publishMsg(h, payload)
	}
	run := r.run(hostDevice(t), streams.Options{BatchBytes: 1000})
	r.tally.await(t, inflight.DeadLettered, len(payloads))
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	letters := r.letters()
	for i, payload := range payloads {
		all := letters[strconv.Itoa(i+1)]
		if len(all) != 1 {
			t.Fatalf("%d letters of input %d, want 1", len(all), i+1)
		}
		r.wantPayload(all[0], payload, []string{"payload", "payload", "headers"}[i])
	}
	r.wantSettled(len(payloads))
}

// letters returns the messages of the dead-letter stream by source sequence. It skips messages without a source
// sequence.
func (r *rig) letters() map[string][]*jetstream.RawStreamMsg {
	r.Helper()
	stream := r.Stream(deadStream)
	found := map[string][]*jetstream.RawStreamMsg{}
	for at := uint64(1); at <= stream.CachedInfo().State.LastSeq; at++ {
		m, err := stream.GetMsg(r.Ctx(), at)
		if err != nil {
			r.Fatal(err)
		}
		if input := m.Header.Get(results.HeaderSequence); input != "" {
			found[input] = append(found[input], m)
		}
	}
	return found
}

// wantPayload checks a dead letter that omits the given part. Its payload must be stored in the same message or in
// another one.
func (r *rig) wantPayload(m *jetstream.RawStreamMsg, payload []byte, omitted string) {
	r.Helper()
	wantHeaders(r.TB, m.Header, map[string]string{results.HeaderReason: "too_large", results.HeaderOmitted: omitted, "Trace": ""})
	where := m.Header.Get(results.HeaderPayloadSequence)
	if omitted != "payload" {
		if where != "" || !bytes.Equal(m.Data, payload) {
			r.Errorf("the letter of input %s is not its payload, or says that it is in message %q", m.Header.Get(results.HeaderSequence), where)
		}
		return
	}
	at, err := strconv.ParseUint(where, 10, 64)
	if err != nil {
		r.Fatalf("the letter does not say where its payload is: %v", m.Header)
	}
	stream := r.Stream(deadStream)
	if apart, err := stream.GetMsg(r.Ctx(), at); err != nil || !bytes.Equal(apart.Data, payload) || apart.Subject != m.Subject {
		r.Errorf("message %d is not the payload of input %s (%v)", at, m.Header.Get(results.HeaderSequence), err)
	}
}
