package publisher

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// A batch whose connection breaks holds a subscription that can be closed only after a reconnect.
func TestNothingIsLeftOfABatchThatFailed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	loss := r.proxy()
	nc := r.connectTo(loss.URL())
	b := NewBatched(r.windowed(patience, nc), nil)
	r.wantStored(b.Publish(r.ctx(), messages(0, 10, 20), nil), 10)
	idle := nc.NumSubscriptions()

	f, err := newFastBatch(b.singles.conns[0], patience, &b.singles.pending)
	if err != nil {
		t.Fatal(err)
	}
	large := messages(10, 20, 1<<20) // more than the client buffers while it is disconnected
	if err := f.begin(r.ctx(), large[0]); err != nil {
		t.Fatal(err)
	}
	loss.Refuse(true)
	until(t, "disconnected", func() bool { return !nc.IsConnected() })
	if _, err := f.finish(r.ctx(), large); err == nil {
		t.Fatal("a batch was finished without a connection")
	}
	b.singles.pending.close(f.publisher)
	if left := len(b.singles.pending.left); left != 1 {
		t.Errorf("%d publishers wait to be closed, want 1", left)
	}
	loss.Refuse(false)
	until(t, "connected again", nc.IsConnected)
	until(t, "it is closed", func() bool {
		b.singles.pending.retry()
		return len(b.singles.pending.left) == 0
	})
	if now := nc.NumSubscriptions(); now != idle {
		t.Errorf("%d subscriptions, and %d before the batch", now, idle)
	}
	r.putAll(b, messages(0, 30, 20))
	r.wantOnce(30, false)
}

// A message that is refused ends its batch. Later errors of the batch must not hide the reason.
func TestTheFirstTroubleIsTheReason(t *testing.T) {
	t.Parallel()
	f := &fastBatch{trouble: make(chan error, 1)}
	if err := f.reason(nil); err != nil {
		t.Errorf("nothing is wrong, and the reason is %v", err)
	}
	f.failed(&jetstream.APIError{ErrorCode: codeMessageTooLarge})
	f.failed(jetstreamext.ErrFastBatchUnknownID)
	if err := f.reason(jetstreamext.ErrFastBatchUnknownID); !Unstorable(err) || !errors.Is(err, jetstreamext.ErrFastBatchUnknownID) {
		t.Errorf("the reason is %v, want the message's own fault, and then what followed", err)
	}
}

// An acknowledgement by itself doesn't prove that every message is stored.
func TestJudge(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	loss := r.proxy()
	nc := r.connectTo(loss.URL())
	l := r.windowed(patience, nc).conns[0]
	begin := func() *fastBatch {
		f, err := newFastBatch(l, patience, &pendingClose{})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	reconnect := func() {
		before := nc.Stats().Reconnects
		loss.Cut()
		until(t, "connected anew", func() bool { return nc.Stats().Reconnects > before && nc.IsConnected() })
	}
	stored := jetstreamext.BatchAck{Sequence: 7, BatchSize: 5}
	f := begin()
	for _, c := range []struct {
		what string
		ack  jetstreamext.BatchAck
		ok   bool
	}{
		{"all stored", stored, true},
		{"one missing", jetstreamext.BatchAck{Sequence: 7, BatchSize: 4}, false},
		{"all known", jetstreamext.BatchAck{BatchSize: 5}, false},
	} {
		if err := f.check(&c.ack, 5); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	reconnect()
	if err := f.check(&stored, 5); err == nil {
		t.Error("the connection was lost in the middle of a batch, and it counts as stored")
	}
	f = begin()
	if err := f.check(&stored, 5); err != nil {
		t.Errorf("the connection was lost before a batch: %v", err)
	}
}
