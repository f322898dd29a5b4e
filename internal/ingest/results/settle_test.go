package results

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
	"millrace/internal/memory"
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

type counted struct{ puts int }

func (c *counted) Publish(_ context.Context, msgs []*nats.Msg, dst []publisher.Answer) []publisher.Answer {
	c.puts += len(msgs)
	return append(dst, make([]publisher.Answer, len(msgs))...)
}

// TestFurtherAttemptsGoOneByOne shows that messages that may already be published are sent one by one. In a batch the
// server silently drops known messages.
func TestFurtherAttemptsGoOneByOne(t *testing.T) {
	t.Parallel()
	first, further := &counted{}, &counted{}
	p := &Writer{first: first, again: further}
	msgs := []*nats.Msg{{}, {}}
	for attempt, want := range map[int]counted{1: {0}, 2: {2}, 3: {2}} {
		*first, *further = counted{}, counted{}
		if n := len(p.publishAttempt(t.Context(), attempt, msgs, nil)); n != len(msgs) || *further != want || first.puts+further.puts != len(msgs) {
			t.Errorf("attempt %d: %d answers, %d put together and %d one by one; want %d one by one", attempt, n, first.puts, further.puts, want.puts)
		}
	}
}

func TestBuffersKeepNoMoreThanTheyMay(t *testing.T) {
	t.Parallel()
	s := &Buffers{left: make([]int, 100)}
	s.Tidy(&inflight.Pool{Budget: &memory.Budget{}})
	if s.left != nil || s.kept != 0 {
		t.Errorf("settle buffers keep %d bytes beyond the bound", s.kept)
	}
}

// TestTheWindowIsAsLongAsIdsAreKnown shows that a longer window covers forgotten ids only after some time.
func TestTheWindowIsAsLongAsIdsAreKnown(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := start.Add
	tell := func(w *duplicateWindow, d, now time.Duration) {
		w.saw(&jetstream.StreamInfo{Config: jetstream.StreamConfig{Duplicates: d}, TimeStamp: at(now)}, at(now))
	}
	w := &duplicateWindow{}
	tell(w, time.Minute, 0)
	for _, c := range []struct{ tell, now, want time.Duration }{
		{0, 0, 40 * time.Second},
		{time.Hour, 0, 40 * time.Second},
		{0, 10 * time.Second, 50 * time.Second},
		{time.Hour, 30 * time.Second, 70 * time.Second}, // queried again
		{0, 2 * time.Hour, time.Hour - 20*time.Second},
		{10 * time.Second, 2 * time.Hour, 5 * time.Second},
		{time.Millisecond, 2 * time.Hour, time.Second},
	} {
		if c.tell > 0 {
			tell(w, c.tell, c.now)
		}
		if got := w.publishFor(at(c.now)); got != c.want {
			t.Errorf("after %v, with a window of %v: results are published for %v, want %v", c.now, c.tell, got, c.want)
		}
	}
}

func TestClearance(t *testing.T) { // not parallel, because it counts allocations
	now := time.Now()
	w := &duplicateWindow{}
	// The server's clock is a minute ahead.
	w.saw(&jetstream.StreamInfo{Config: jetstream.StreamConfig{Duplicates: 2 * time.Minute}, TimeStamp: now.Add(time.Minute)}, now)
	for name, c := range map[string]struct {
		d    inflight.Delivery
		want bool
	}{
		"just delivered":  {inflight.Delivery{Cleared: now.Add(-time.Second), Stored: now.Add(-time.Hour)}, true},
		"held for long":   {inflight.Delivery{Cleared: now.Add(-100 * time.Second), Stored: now.Add(-time.Hour)}, false},
		"again and young": {inflight.Delivery{Stored: now.Add(-39 * time.Second)}, true},
		"again and old":   {inflight.Delivery{Stored: now.Add(-41 * time.Second)}, false},
		"held while suspended": {inflight.Delivery{Cleared: time.Unix(0, now.Add(-100*time.Second).UnixNano()), Stored: now.Add(-time.Hour)},
			false},
	} {
		if got := w.mayPublishUnchecked(&c.d, now, w.publishFor(now)); got != c.want {
			t.Errorf("%s: may be published: %v, want %v", name, got, c.want)
		}
	}
	d := inflight.Delivery{Cleared: now}
	if n := testing.AllocsPerRun(100, func() { w.mayPublishUnchecked(&d, now, time.Minute) }); n != 0 {
		t.Errorf("clearing a delivery allocates %v times", n)
	}
}

func TestShortSubject(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("x", publisher.MaxSubject)
	for subject, want := range map[string]string{
		"a.b.": "a.b.", whole: whole, whole + "y": whole, whole[1:] + ".z": whole[1:],
	} {
		if got := shortSubject(subject); got != want {
			t.Errorf("shortSubject of %d bytes has %d, want %d", len(subject), len(got), len(want))
		}
	}
}

// TestHeadersThatPassThroughCanBeWritten compares passThrough with the client, which reports no size for an invalid
// header.
func TestHeadersThatPassThroughCanBeWritten(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		key := "a" + string([]byte{byte(c)})
		_, passes := passThrough(nats.Header{key: {"b"}}, 0, true)[key]
		if writes := (&nats.Msg{Header: nats.Header{key: nil}}).Size() > 0; passes != writes {
			t.Errorf("header %q passes through: %v; the client writes it: %v", key, passes, writes)
		}
	}
	if got := passThrough(nats.Header{"": {"b"}}, 0, true); len(got) != 0 {
		t.Errorf("a header without a key passes through: %v", got)
	}
}
