package partitioned

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// TestReadingAReplicatedStream uses retention by limits and by interest. With limits, a temporary consumer with one
// replica delivers many messages at once and reports the end. With interest there is no temporary consumer, because
// its removal may remove inputs.
func TestReadingAReplicatedStream(t *testing.T) {
	t.Parallel()
	r := newRigOn(natstest.At(t, natstest.Cluster(t, 3)), 1)
	for _, interest := range []bool{false, true} {
		if interest {
			c := r.StreamConfig("INGEST")
			c.Retention = jetstream.InterestPolicy
			r.Create(c)
		}
		const n = 3 * readSingly
		before := r.Stream("INGEST").CachedInfo().State.LastSeq
		r.publish(n, document)
		there := r.Consumers("INGEST")
		reader := &streamReader{js: r.JS, inputs: r.NC, stream: "INGEST", filter: "0.>", refused: &atomic.Bool{}, log: slog.New(slog.DiscardHandler)}
		for i := range uint64(n) {
			raw, err := reader.read(r.Ctx(), before+i+1)
			if err != nil || raw == nil || raw.Sequence != before+i+1 {
				t.Fatalf("input %d: %v, %v", before+i+1, raw, err)
			}
		}
		if raw, err := reader.read(r.Ctx(), before+n+1); raw != nil || err != nil {
			t.Errorf("after the last input: %v, %v", raw, err)
		}
		if err := reader.proveEnd(r.Ctx(), before+n+1); err != nil {
			t.Error(err)
		}
		if interest {
			if now := r.Consumers("INGEST"); !slices.Equal(now, there) || !reader.refused.Load() {
				t.Errorf("interest retention: the reader has made consumers: %v, before %v", now, there)
			}
			continue
		}
		if err := reader.proveEnd(r.Ctx(), before+n); (err == nil || !strings.Contains(err.Error(), "finds none of them")) && !reader.refused.Load() {
			t.Errorf("proveEnd says that there is no input %d: %v", before+n, err)
		}
	}
}

// TestAFetchedInputThatIsLostIsReadSingly loses one of the inputs that a temporary consumer delivers.
func TestAFetchedInputThatIsLostIsReadSingly(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const n, lost = readSingly + 10, readSingly + 4
	r.publish(n, document)
	var losses atomic.Int32
	loss := r.Proxy()
	loss.Lose(func(_ string, body []byte) bool {
		its := bytes.HasPrefix(body, document(lost-1))
		if its {
			losses.Add(1)
		}
		return its
	})
	reader := &streamReader{js: r.JS, inputs: r.Connect(loss.URL()), stream: "INGEST", filter: "0.>", refused: &atomic.Bool{}, log: r.Log.Logger()}
	for i := range uint64(n) {
		raw, err := reader.read(r.Ctx(), i+1)
		if err != nil || raw == nil {
			t.Fatalf("input %d isn't read: %v", i+1, err)
		}
		if raw.Sequence != i+1 || !bytes.Equal(raw.Data, document(int(i))) {
			t.Fatalf("input %d is read as number %d, with %d bytes", raw.Sequence, i+1, len(raw.Data))
		}
		if i == readSingly && (len(reader.ahead) == 0 || losses.Load() != 1) {
			t.Fatalf("%d inputs were fetched behind the first one, and %d were lost, want some and 1", len(reader.ahead), losses.Load())
		}
		if i == readSingly && reader.bulk != "" {
			t.Error("the reader goes on with the consumer that lost an input")
		}
	}
}
