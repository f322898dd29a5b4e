package lease

import (
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/store"
)

// TestALogIsReadBetweenTwoSequences reads parts of a log that has other messages between its entries. One part is larger than a request.
func TestALogIsReadBetweenTwoSequences(t *testing.T) {
	t.Parallel()
	const markers, entries, size = "commits.RESULTS.IN.millrace.0", 34, natstest.MaxPayload / 2
	r := natstest.New(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"commits.>"}, AllowDirect: true})
	r.Publish(0, 2*entries, func(i int) *nats.Msg {
		if i%2 == 0 {
			return &nats.Msg{Subject: markers}
		}
		return statelog.Message(markers, false, uint64(i), &store.State{}, slices.Repeat([]byte{byte(i)}, size))
	})
	if entries*size < 2*logAheadBytes {
		t.Fatalf("the log has %d bytes, which is less than two requests", entries*size)
	}
	bytes := 0
	l := NewStateLog(r.JS, r.NC, "RESULTS", markers, func(n int) { bytes += n }, slog.New(slog.DiscardHandler))
	for _, part := range []struct {
		after, before uint64
		first, n      int // number of the first entry, from 0, and how many there are
	}{
		{0, math.MaxUint64, 0, entries},
		{0, 2*entries - 2, 0, entries - 2},
		{20, 25, 10, 2},
		{2*entries - 1, math.MaxUint64, entries - 1, 1},
		{2 * entries, math.MaxUint64, 0, 0},
	} {
		n := 0
		bytes = 0
		for e, err := range l.Read(r.Ctx(), part.after, part.before) {
			if err != nil {
				t.Fatal(err)
			}
			want := uint64(2 * (part.first + n + 1))
			if e.Sequence != want || e.Behind != want-1 || len(e.Entry) != size || e.Entry[0] != byte(want-1) {
				t.Fatalf("between %d and %d: entry %d has sequence %d and is behind %d, want %d", part.after, part.before, n, e.Sequence, e.Behind, want)
			}
			n++
		}
		if n != part.n || bytes != n*size {
			t.Errorf("between %d and %d: %d entries with %d bytes, want %d", part.after, part.before, n, bytes, part.n)
		}
	}
	for _, err := range l.Read(r.Ctx(), 0, math.MaxUint64) {
		natstest.OK(t, err)
		break // a caller may stop at any time, and read again
	}
	r.Put(&nats.Msg{Subject: statelog.Subject(markers)})
	var failed error
	for _, err := range l.Read(r.Ctx(), 0, math.MaxUint64) {
		failed = err
	}
	if failed == nil || !strings.Contains(failed.Error(), "somebody else publishes there") {
		t.Errorf("a message that is no entry: %v", failed)
	}
}
