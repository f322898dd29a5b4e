package results

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
)

// failsOnce is a Sink whose first dead letter isn't stored.
type failsOnce struct {
	noSink
	given []int
}

var errSink = errors.New("the dead letter isn't stored")

func (f *failsOnce) Undeliverable(_ context.Context, _ *inflight.Batch, i int, _ Reason, _ error) error {
	if f.given = append(f.given, i); len(f.given) == 1 {
		return errSink
	}
	return nil
}

// refusing is a publisher for a stream that refuses the first results as too large.
type refusing int

func (n refusing) Publish(_ context.Context, msgs []*nats.Msg, dst []publisher.Answer) []publisher.Answer {
	dst = append(dst, make([]publisher.Answer, len(msgs))...)
	for i := range int(n) {
		dst[i].Err = nats.ErrMaxPayload
	}
	return dst
}

// TestADeadLetterThatIsNotStoredEndsTheBatch shows that the batch ends even if a later result or its dead letter
// could be stored. Otherwise the input would never be settled.
func TestADeadLetterThatIsNotStoredEndsTheBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}})
	w := r.writer()
	pipe := r.pipeline(w)
	for n := range 3 {
		w.first = refusing(n)
		b := &inflight.Batch{}
		for range 3 {
			b.Add(r.input([]byte("payload")))
			b.Bodies.Add([]byte("{}"))
		}
		var buffers Buffers
		sink := &failsOnce{}
		err := w.Settle(r.Ctx(), pipe, b, &buffers, sink)
		if n > 0 && !errors.Is(err, errSink) || n == 0 && err != nil {
			t.Errorf("of 3 results %d can't be stored, and the sink fails on one: %v", n, err)
		}
		if want := min(n, 1); len(sink.given) != want {
			t.Errorf("the sink gets %d deliveries, want %d: it fails on the first", len(sink.given), want)
		}
	}
}
