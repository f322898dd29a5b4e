package publisher

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
)

// begin prepares a batch with a new id.
func begin(t *testing.T, l *connection) *fastBatch {
	t.Helper()
	f, err := l.batches.begin("", 2)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestNothingIsLeftOfABatchThatFailed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	loss := r.Proxy()
	nc := r.Connect(loss.URL())
	b := NewBatched(r.windowed(patience, nc), nil)
	r.wantStored(b.Publish(r.Ctx(), messages(0, 10, 20), nil), 10)
	idle := nc.NumSubscriptions()

	l := b.singles.conns[0]
	f, large := begin(t, l), messages(10, 20, 1<<20) // more than the client buffers while disconnected
	loss.Refuse(true)
	r.Until("disconnected", func() bool { return !nc.IsConnected() })
	if _, err := f.publish(r.Ctx(), FastBatch{Messages: large}, patience); err == nil {
		t.Fatal("a batch was finished without a connection")
	}
	if left := len(l.batches.open); left != 0 {
		t.Errorf("%d batches wait for answers", left)
	}
	loss.Refuse(false)
	r.Until("connected again", nc.IsConnected)
	r.putAll(b, messages(0, 30, 20))
	r.wantOnce(30, false)
	if now := nc.NumSubscriptions(); now != idle {
		t.Errorf("%d subscriptions, and %d before the batch", now, idle)
	}
}

// TestTheFirstTroubleIsTheReason refuses a message, which ends its batch. The server's report about earlier messages
// must not hide the reason.
func TestTheFirstTroubleIsTheReason(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 })
	w := r.windowed(patience, r.Connect(r.URL))
	msgs := messages(0, 1000, 20)
	msgs[3].Data = make([]byte, 2000)
	if _, err := w.StoreFast(r.Ctx(), FastBatch{Messages: msgs}); !Unstorable(err) {
		t.Errorf("a batch with a message that is too large ended with %v", err)
	}
	if stored := r.stored(); stored != 3 {
		t.Errorf("%d messages are stored, want those before the one that is too large", stored)
	}
}

// TestConfirmedMessages shows that a message that requires the confirmation of earlier messages is not sent without
// it.
func TestConfirmedMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	loss := r.Proxy()
	w := r.windowed(time.Second, r.Connect(loss.URL()))
	b := FastBatch{Messages: messages(0, 100, 20), Confirm: func(i int) bool { return i == 1 || i == 50 }}
	if _, err := w.StoreFast(r.Ctx(), b); err != nil || r.stored() != 100 {
		t.Errorf("%d messages are stored: %v", r.stored(), err)
	}
	pings := 0
	loss.Lose(func(subject string, _ []byte) bool {
		if !strings.HasSuffix(subject, "."+opPing+batchSuffix) {
			return false
		}
		pings++
		return pings == 2
	})
	b.Messages = messages(100, 100, 20)
	if _, err := w.StoreFast(r.Ctx(), b); err == nil || r.stored() != 150 {
		t.Errorf("%d messages are stored, want half of the second batch: %v", r.stored(), err)
	}
}

// TestOneBatchWithAnId shows that a server has only one batch with an id at a time. A second batch ends the first,
// whose remaining messages the server refuses. Commit markers rely on this (adr/0046).
func TestOneBatchWithAnId(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first, second := r.windowed(patience, r.Connect(r.URL)), r.windowed(patience, r.Connect(r.URL))
	begun, err := first.conns[0].batches.begin("same", 100)
	if err != nil {
		t.Fatal(err)
	}
	msgs := messages(0, 100, 20)
	for i, m := range msgs[:50] {
		if err := begun.send(r.Ctx(), i, len(msgs), m); err != nil {
			t.Fatal(err)
		}
	}
	r.Until("half of the first batch is stored", func() bool { return r.stored() == 50 })
	if _, err := second.StoreFast(r.Ctx(), FastBatch{ID: "same", Messages: messages(100, 1, 20)}); !errors.Is(err, ErrBatchEnded) || r.stored() != 50 {
		t.Fatalf("%d messages are stored, and a batch with the id of one that is under way ended with %v", r.stored(), err)
	}
	if _, err := second.StoreFast(r.Ctx(), FastBatch{ID: "same", Messages: messages(100, 1, 20)}); err != nil {
		t.Fatal(err)
	}
	for i, m := range msgs[50:] {
		if err := begun.send(r.Ctx(), 50+i, len(msgs), m); err != nil {
			t.Fatal(err)
		}
	}
	var refused *jetstream.APIError
	if a, err := begun.await(r.Ctx(), msgs[0], patience); err != nil || !errors.As(begun.check(a, len(msgs)), &refused) {
		t.Errorf("the rest of the first batch ended with %+v, %v", a, err)
	}
	if stored := r.stored(); stored != 51 {
		t.Errorf("%d messages are stored, want half of the first batch and the second one", stored)
	}
}

// TestAcknowledgements shows that an acknowledgement alone doesn't prove that every message is stored.
func TestAcknowledgements(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	loss := r.Proxy()
	nc := r.Connect(loss.URL())
	l := r.windowed(patience, nc).conns[0]
	stored := batchAnswer{Sequence: 7, Count: 5}
	f := begin(t, l)
	for what, c := range map[string]struct {
		answer batchAnswer
		ok     bool
	}{
		"all stored":  {stored, true},
		"one missing": {batchAnswer{Sequence: 7, Count: 4}, false},
		"all known":   {batchAnswer{Count: 5}, false},
		"a gap":       {batchAnswer{Type: "gap", Sequence: 7, Count: 5}, false},
		"refused":     {batchAnswer{Sequence: 7, Count: 5, Error: &jetstream.APIError{}}, false},
		"no stream":   {batchAnswer{failed: jetstream.ErrNoStreamResponse}, false},
	} {
		if err := f.check(c.answer, 5); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
	before := nc.Stats().Reconnects
	loss.Cut()
	r.Until("connected anew", func() bool { return nc.Stats().Reconnects > before && nc.IsConnected() })
	if err := f.check(stored, 5); err == nil {
		t.Error("the connection was lost in the middle of a batch, and it counts as stored")
	}
	if _, err := f.await(r.Ctx(), messages(0, 1, 20)[0], patience); !errors.Is(err, errConnectionLost) {
		t.Errorf("the connection was lost in the middle of a batch, which waits until %v", err)
	}
	if err := begin(t, l).check(stored, 5); err != nil {
		t.Errorf("the connection was lost before a batch: %v", err)
	}
}

// TestNothingIsSentAfterTheDeadline publishes with a passed deadline whose timer has not fired yet, as after a stop
// of the process.
func TestNothingIsSentAfterTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	nc := r.Connect(r.URL)
	singles, err := NewWindowed(jsapi.API{}, Timeout, nc)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Publisher{"one by one": singles, "in batches": NewBatched(singles, nil)} {
		answers := s.Publish(passed{t.Context()}, messages(1, 10, 10), nil)
		if len(answers) != 10 {
			t.Fatalf("%s: %d answers to 10 messages", name, len(answers))
		}
		for i, a := range answers {
			if !errors.Is(a.Err, context.DeadlineExceeded) {
				t.Errorf("%s: message %d: %v", name, i, a.Err)
			}
		}
	}
	stream := r.Stream("RESULTS")
	if n := stream.CachedInfo().State.LastSeq; n != 0 {
		t.Errorf("%d messages were stored after their time", n)
	}
}

// passed is a context that isn't done although its deadline has passed.
type passed struct{ context.Context }

func (passed) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// TestProgressAfterALostConnectionConfirmsNothing simulates a connection that was lost and restored, on which the
// server answers a ping. The server's report that it refused an earlier message may have been lost.
func TestProgressAfterALostConnectionConfirmsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	loss := r.Proxy()
	nc := r.Connect(loss.URL())
	l, first := r.windowed(patience, nc).conns[0], messages(0, 1, 20)[0]
	progress := batchAnswer{Type: "ack", Sequence: 5}
	f := begin(t, l)
	loss.Cut()
	r.Until("connected anew", func() bool { return nc.Stats().Reconnects > f.reconnects && nc.IsConnected() })
	f.outcome <- progress
	if err := f.confirm(r.Ctx(), 5, first, patience); err == nil {
		t.Error("messages that were sent before the connection was lost count as stored")
	}
	f = begin(t, l)
	f.outcome <- progress
	if err := f.confirm(r.Ctx(), 5, first, patience); err != nil {
		t.Errorf("messages that were sent after the connection was lost: %v", err)
	}
}

// TestABatchThatIsNotConfirmedIsEnded shows that the client ends a batch at the server after a lost answer. Otherwise
// the server would keep the batch for seconds, and the number of batches is limited.
func TestABatchThatIsNotConfirmedIsEnded(t *testing.T) {
	t.Parallel()
	for name, confirm := range map[string]func(int) bool{"the report on the batch": nil, "the confirmation of a part": func(i int) bool { return i == 5 }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			requests, err := r.NC.SubscribeSync("results.>")
			if err != nil {
				t.Fatal(err)
			}
			if err := r.NC.Flush(); err != nil {
				t.Fatal(err)
			}
			loss := r.Proxy()
			loss.Lose(func(subject string, _ []byte) bool { return strings.HasSuffix(subject, batchSuffix) })
			nc := r.Connect(loss.URL())
			w := r.windowed(50*time.Millisecond, nc)
			if _, err := w.StoreFast(r.Ctx(), FastBatch{Messages: messages(0, 10, 20), Confirm: confirm}); err == nil {
				t.Fatal("a batch without an answer counts as stored")
			}
			if err := errors.Join(nc.Flush(), r.NC.Flush()); err != nil { // all requests have arrived
				t.Fatal(err)
			}
			last := ""
			for m, err := requests.NextMsg(time.Millisecond); err == nil; m, err = requests.NextMsg(time.Millisecond) {
				last = m.Reply
			}
			if !strings.HasSuffix(last, "."+opCommitEnd+batchSuffix) {
				t.Errorf("the server isn't told that the batch has ended; the last request is %q", last)
			}
		})
	}
}
