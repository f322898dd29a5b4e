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
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/store"
	"millrace/internal/memory"
)

// records is a Sink that records the outcomes, by stream sequence.
type records struct{ stored, dead, incomplete []uint64 }

func (s *records) Stored(_ context.Context, stored []*inflight.Delivery) {
	for _, d := range stored {
		s.stored = append(s.stored, d.Sequence)
	}
}

func (s *records) DeadLettered(d *inflight.Delivery, _ Reason) { s.dead = append(s.dead, d.Sequence) }

func (s *records) Incomplete(b *inflight.Batch, i int, _ error) error {
	b.Settle(i)
	s.incomplete = append(s.incomplete, b.Items[i].Sequence)
	return nil
}

// refusing is a publisher for a stream that refuses the first messages of each call as too large.
type refusing struct {
	first int
	puts  int // number of messages so far
}

func (p *refusing) Publish(_ context.Context, msgs []*nats.Msg, dst []store.Answer) []store.Answer {
	p.puts += len(msgs)
	dst = append(dst, make([]store.Answer, len(msgs))...)
	for i := range p.first {
		dst[i].Err = nats.ErrMaxPayload
	}
	return dst
}

// TestADeadLetterThatIsNotStoredEndsItsInput shows that no input is settled while its dead letter isn't stored. One result can't
// be stored, and an operator refuses another input. The results of the other inputs are stored.
func TestADeadLetterThatIsNotStoredEndsItsInput(t *testing.T) {
	t.Parallel()
	r, w := newRig(t, func(c *jetstream.StreamConfig) { c.Subjects = []string{"results.>"} }) // no stream stores dead letters
	for n := range 3 {
		w.server.First = &refusing{first: n}
		b, sink := r.payloads(4), &records{}
		b.Refuse(3, errors.New("no"))
		natstest.OK(t, w.Store(r.Ctx(), b, new(Buffers), sink))
		if len(sink.stored) != 3-n || len(sink.incomplete) != n+1 || len(b.Unsettled()) > 0 {
			t.Errorf("of 4 inputs %d results can't be stored, and one is refused: %+v, %d are unsettled", n, sink, len(b.Unsettled()))
		}
		b = r.payloads(4)
		b.Refuse(3, errors.New("no"))
		if err := w.Store(r.Ctx(), b, new(Buffers), noSink{}); err == nil || b.IsSettled(3) {
			t.Errorf("the sink fails, but the batch doesn't: %v, settled: %v", err, b.IsSettled(3))
		}
	}
}

// lastFails is a publisher whose stream refuses the first message as too large. It doesn't answer the last message.
type lastFails struct{ refusing }

func (p *lastFails) Publish(ctx context.Context, msgs []*nats.Msg, dst []store.Answer) []store.Answer {
	dst = p.refusing.Publish(ctx, msgs, dst)
	dst[len(dst)-1].Err = errors.New("no answer")
	return dst
}

// TestADeadLetterNamesTheErrorOfItsOwnResult shows that an unstorable result becomes a dead letter with its own error. Another result of
// the batch fails for a different reason.
func TestADeadLetterNamesTheErrorOfItsOwnResult(t *testing.T) {
	t.Parallel()
	r, w := newRig(t, nil)
	w.server.First = &lastFails{refusing{first: 1}}
	sink := &records{}
	natstest.OK(t, w.Store(r.Ctx(), r.payloads(3), new(Buffers), sink))
	if len(sink.dead) != 1 || sink.dead[0] != 1 || len(sink.stored) != 2 {
		t.Fatalf("the outcomes are %+v, want a dead letter of input 1 and two results", sink)
	}
	m := r.Stored("RESULTS")[0]
	if got := m.Header.Get(HeaderError); !strings.Contains(got, nats.ErrMaxPayload.Error()) {
		t.Errorf("the dead letter has the error %q, want that of its own result", got)
	}
}

// TestFurtherAttemptsGoOneByOne shows that messages that may already be published are sent one by one. In a batch the
// server silently drops known messages.
func TestFurtherAttemptsGoOneByOne(t *testing.T) {
	t.Parallel()
	msgs := []*nats.Msg{{}, {}}
	for attempt, want := range map[int]int{1: 0, 2: 2, 3: 2} {
		together, alone := &refusing{}, &refusing{}
		w := &Writer{server: &Server{First: together, Again: alone}}
		n := len(w.publishAttempt(t.Context(), attempt, msgs, nil))
		if n != len(msgs) || alone.puts != want || together.puts+alone.puts != len(msgs) {
			t.Errorf("attempt %d: %d answers, %d put together and %d one by one; want %d one by one",
				attempt, n, together.puts, alone.puts, want)
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

// see records that the stream's duplicate window had the given length at a time. ahead is the lead of the server's clock.
func (w *duplicateWindow) see(window time.Duration, at time.Time, ahead time.Duration) {
	w.saw(&jetstream.StreamInfo{Config: jetstream.StreamConfig{Duplicates: window}, TimeStamp: at.Add(ahead)}, at)
}

// TestTheWindowIsAsLongAsIdsAreKnown shows that a longer window covers forgotten ids only after some time.
func TestTheWindowIsAsLongAsIdsAreKnown(t *testing.T) {
	t.Parallel()
	start, w := time.Now(), &duplicateWindow{}
	for _, c := range []struct{ tell, now, want time.Duration }{
		{time.Minute, 0, 40 * time.Second},
		{time.Hour, 0, 40 * time.Second},
		{0, 10 * time.Second, 50 * time.Second},
		{time.Hour, 30 * time.Second, 70 * time.Second}, // queried again
		{0, 2 * time.Hour, time.Hour - 20*time.Second},
		{10 * time.Second, 2 * time.Hour, 5 * time.Second},
		{time.Millisecond, 2 * time.Hour, time.Second},
	} {
		if c.tell > 0 {
			w.see(c.tell, start.Add(c.now), 0)
		}
		if got := w.publishFor(start.Add(c.now)); got != c.want {
			t.Errorf("after %v, with a window of %v: results are published for %v, want %v", c.now, c.tell, got, c.want)
		}
	}
}

func TestClearance(t *testing.T) { // not parallel, because it counts allocations
	now, w := time.Now(), &duplicateWindow{}
	w.see(2*time.Minute, now, time.Minute)
	anHour := now.Add(-time.Hour)
	for name, c := range map[string]struct {
		d    inflight.Delivery
		want bool
	}{
		"just delivered":       {inflight.Delivery{Cleared: now.Add(-time.Second), Stored: anHour}, true},
		"held for long":        {inflight.Delivery{Cleared: now.Add(-100 * time.Second), Stored: anHour}, false},
		"again and young":      {inflight.Delivery{Stored: now.Add(-39 * time.Second)}, true},
		"again and old":        {inflight.Delivery{Stored: now.Add(-41 * time.Second)}, false},
		"held while suspended": {inflight.Delivery{Cleared: time.Unix(0, now.Add(-100*time.Second).UnixNano()), Stored: anHour}, false},
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
