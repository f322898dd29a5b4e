package publisher

import (
	"errors"
	"strings"
	"testing"
	"time"
)

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
