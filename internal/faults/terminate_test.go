package faults

import (
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/natstest"
)

// TestWorkerTerminated stops workers under load, one after another, as a supervisor does. Each worker finishes the
// inputs that it has received. It returns no input and computes none twice. No input must wait for AckWait, which is
// minutes here. The server may have counted deliveries that it was about to send when the worker left. With shared
// delivery, the server redelivers these inputs at once. With exclusive delivery, the worker requests one of them on
// behalf of each partition's next owner, which reads the remaining inputs from the stream.
func TestWorkerTerminated(t *testing.T) {
	eachMode(t, func(r *rig) {
		stops := times(20, 3)
		r.set("MILLRACE_ACK_WAIT=10m")
		r.serve(1)
		back := r.count("$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED." + inputStream + ".>")
		published := r.count("results.>")
		r.work(1)
		f := r.feed(endless, r.inputs())
		for range stops {
			r.awaitResults(1 + r.rng.IntN(2000))
			r.retire()
			if r.mode() != "exclusive" { // with exclusive delivery, the acknowledgements are confirmed
				r.until("no input is being redelivered", func() bool { // the server may still be reading acknowledgements
					c, ok := r.consumed()
					return ok && c.redelivering == 0
				})
			}
			r.work(1)
		}
		f.finish()
		a := r.close("SIGTERM of a worker", stops)
		r.until("every result was seen", func() bool { return int(published.Load()) >= a.payloads })
		if n := published.Load(); int(n) != a.payloads {
			r.t.Errorf("%d results were published for %d inputs: some were computed twice", n, a.payloads)
		}
		maximum := int64(0)
		if r.mode() == "exclusive" {
			maximum = int64(stops * defaultPartitions)
		}
		if n := back.Load(); n > maximum {
			r.t.Errorf("workers returned %d inputs, want at most %d", n, maximum)
		}
		if a.dead > 0 {
			r.t.Errorf("%d dead letters of valid inputs", a.dead)
		}
	})
}

// count counts the messages that arrive on a subject from now on. It includes results that a stream drops as
// duplicates.
func (r *rig) count(subject string) *atomic.Int64 {
	r.t.Helper()
	n := &atomic.Int64{}
	nc := r.connect()
	s, err := nc.Subscribe(subject, func(*nats.Msg) { n.Add(1) })
	if err == nil {
		err = s.SetPendingLimits(-1, -1)
	}
	if err == nil {
		err = nc.FlushTimeout(natstest.Patience)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}
