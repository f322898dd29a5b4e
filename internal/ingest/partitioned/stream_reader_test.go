package partitioned

import (
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// TestReadingAReplicatedStreamWithInterest: the server allows there only consumers with as many replicas, and the reader needs one to read
// many messages at once, and to know that there are no more.
func TestReadingAReplicatedStreamWithInterest(t *testing.T) {
	t.Parallel()
	r := newRigOn(natstest.At(t, natstest.Cluster(t, 3)), 1, jetstream.InterestPolicy)
	const n = 3 * readSingly
	r.publish(n, document)
	reader := &streamReader{js: r.JS, requests: r.NC, inputs: r.NC, stream: "INGEST", filter: "0.>", refused: &atomic.Bool{}, log: slog.New(slog.DiscardHandler)}
	for i := range uint64(n) {
		raw, err := reader.read(r.Ctx(), i+1)
		if err != nil || raw == nil || raw.Sequence != i+1 {
			t.Fatalf("input %d: %v, %v", i+1, raw, err)
		}
	}
	if reader.refused.Load() || reader.bulk == "" {
		t.Error("the server refused the temporary consumer")
	}
	if raw, err := reader.read(r.Ctx(), n+1); raw != nil || err != nil {
		t.Errorf("after the last input: %v, %v", raw, err)
	}
	if err := reader.proveEnd(r.Ctx(), n+1); err != nil {
		t.Error(err)
	}
	if err := reader.proveEnd(r.Ctx(), n); err == nil {
		t.Errorf("proveEnd says that there is no input %d", n)
	}
}
