package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

func TestNothingIsLeftOfABatchThatFailed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	nc, b := r.proxied, r.batching(r.windowed(patience, r.proxied))
	r.put(b, messages(0, 10, 20), false)
	idle := nc.NumSubscriptions()

	l := b.singles.conns[0]
	f := l.batches.begin(FastBatch{Messages: messages(10, 20, 1<<20)}) // more than the client buffers while disconnected
	r.disconnect()
	if _, err := f.publish(r.Ctx(), patience); err == nil {
		t.Fatal("a batch was finished without a connection")
	}
	if left := len(l.batches.open); left != 0 {
		t.Errorf("%d batches wait for answers", left)
	}
	r.proxy.Refuse(false)
	r.Until("connected again", nc.IsConnected)
	r.putAll(b, messages(0, 30, 20))
	r.wantOnce(30, false)
	if now := nc.NumSubscriptions(); now != idle {
		t.Errorf("%d subscriptions, and %d before the batch", now, idle)
	}
}

// TestTheFirstTroubleIsTheReason makes the server refuse a message, which ends the batch. The server's report about
// earlier messages must not hide the reason.
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

// TestConfirmedMessages shows that a message that requires the confirmation of earlier messages is not sent without it.
func TestConfirmedMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	w := r.windowed(time.Second, r.proxied)
	b := FastBatch{Messages: messages(0, 100, 20), Confirm: func(i int) bool { return i == 1 || i == 50 }}
	if _, err := w.StoreFast(r.Ctx(), b); err != nil || r.stored() != 100 {
		t.Errorf("%d messages are stored: %v", r.stored(), err)
	}
	pings := 0
	r.proxy.Lose(func(subject string, _ []byte) bool {
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
	begun := first.conns[0].batches.begin(FastBatch{ID: "same", Messages: messages(0, 100, 20)})
	send := func(from, to int) {
		for i := from; i < to; i++ {
			natstest.OK(t, begun.send(r.Ctx(), i))
		}
	}
	send(0, 50)
	r.Until("half of the first batch is stored", func() bool { return r.stored() == 50 })
	same := FastBatch{ID: "same", Messages: messages(100, 1, 20)}
	if _, err := second.StoreFast(r.Ctx(), same); !errors.Is(err, ErrBatchEnded) || r.stored() != 50 {
		t.Fatalf("%d messages are stored, and a batch with the id of an open batch ended with %v", r.stored(), err)
	}
	natstest.Must(second.StoreFast(r.Ctx(), same))(t)
	send(50, 100)
	var refused *jetstream.APIError
	if a, err := begun.await(r.Ctx(), patience); err != nil || !errors.As(begun.check(a, 100), &refused) {
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
	l := r.windowed(patience, r.proxied).conns[0]
	b, stored := FastBatch{Messages: messages(0, 5, 20)}, batchAnswer{Sequence: 7, Count: 5}
	f := l.batches.begin(b)
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
	r.reconnect()
	if err := f.check(stored, 5); err == nil {
		t.Error("the connection was lost in the middle of a batch, but the batch counts as stored")
	}
	if _, err := f.await(r.Ctx(), patience); !errors.Is(err, errConnectionLost) {
		t.Errorf("the connection was lost in the middle of a batch, but the batch waits until %v", err)
	}
	if err := l.batches.begin(b).check(stored, 5); err != nil {
		t.Errorf("the connection was lost before a batch: %v", err)
	}
}

// TestNothingIsSentAfterTheDeadline publishes with a passed deadline whose timer has not fired yet. This happens after a stop of the process.
func TestNothingIsSentAfterTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	singles := r.windowed(Timeout, r.proxied)
	before := r.proxied.Stats().OutMsgs
	for name, s := range map[string]Publisher{"one by one": singles, "in batches": r.batching(singles)} {
		is := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
		r.wantErrors(s.Publish(passed{t.Context()}, messages(1, 10, 10), nil), 10, name, is)
	}
	if n := r.proxied.Stats().OutMsgs - before; n != 0 {
		t.Errorf("%d messages were sent after the deadline", n)
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
	l, b := r.windowed(patience, r.proxied).conns[0], FastBatch{Messages: messages(0, 10, 20)}
	progress := batchAnswer{Type: "ack", Sequence: 5}
	f := l.batches.begin(b)
	r.reconnect()
	f.outcome <- progress
	if err := f.confirm(r.Ctx(), 5, patience); err == nil {
		t.Error("messages that were sent before the connection was lost count as stored")
	}
	f = l.batches.begin(b)
	f.outcome <- progress
	if err := f.confirm(r.Ctx(), 5, patience); err != nil {
		t.Errorf("messages that were sent after the connection was lost: %v", err)
	}
}

// TestABatchThatIsNotConfirmedIsEnded shows that the client ends a batch at the server after a lost answer. Otherwise
// the server would keep the batch for seconds, and the number of batches is limited.
func TestABatchThatIsNotConfirmedIsEnded(t *testing.T) {
	t.Parallel()
	for name, confirm := range map[string]func(int) bool{
		"the report on the batch": nil, "the confirmation of a part": func(i int) bool { return i == 5 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			requests := natstest.Must(r.NC.SubscribeSync("results.>"))(t)
			natstest.OK(t, r.NC.Flush())
			r.proxy.Lose(func(subject string, _ []byte) bool { return strings.HasSuffix(subject, batchSuffix) })
			w := r.windowed(50*time.Millisecond, r.proxied)
			if _, err := w.StoreFast(r.Ctx(), FastBatch{Messages: messages(0, 10, 20), Confirm: confirm}); err == nil {
				t.Fatal("a batch without an answer counts as stored")
			}
			natstest.OK(t, errors.Join(r.proxied.Flush(), r.NC.Flush())) // all requests have arrived
			last := ""
			for m, err := requests.NextMsg(time.Millisecond); err == nil; m, err = requests.NextMsg(time.Millisecond) {
				last = m.Reply
			}
			if !strings.HasSuffix(last, "."+opCommitEnd+batchSuffix) {
				t.Errorf("the client doesn't tell the server that the batch has ended; the last request is %q", last)
			}
		})
	}
}
