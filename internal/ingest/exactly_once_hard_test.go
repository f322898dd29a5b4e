package ingest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/frame"
	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// TestExactlyOnceOfFrames: results have several parts, and some records are refused. Connections break while they are stored, and
// everything is delivered again afterwards.
func TestExactlyOnceOfFrames(t *testing.T) {
	t.Parallel()
	eachCommit(t, 1, func(t *testing.T, r *rig) {
		r.opts.Format, r.opts.Split.Framing = operator.JSON, frame.NewlineDelimited
		r.opts.Split.MaxRecords, r.opts.Split.MaxBytes = 1<<16, 64<<20
		r.update("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 4000 })
		d := r.refuse(t)
		proxy := natstest.NewProxy(t, "127.0.0.1:0", strings.TrimPrefix(r.url, "nats://"))
		direct := r.url
		r.url = proxy.URL()
		var inputs []framed
		for i := range uint64(40) {
			inputs = append(inputs, manyLines(i, 1+int(i)*3, int(i)))
		}
		r.publishFrames(inputs)
		run := r.run(d, streams.Config{BatchPayloads: 64})
		for round := range 10 {
			pass(t, time.Duration(5+7*round)*time.Millisecond)
			proxy.Cut()
		}
		until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
		if err := run.drain(); err != nil {
			t.Fatal(err)
		}
		r.wantFrames(inputs)
		r.url = direct
		r.deliverAgain()
		r.process(d, streams.Config{BatchPayloads: 64})
		r.wantFrames(inputs)
	})
}

// TestExactlyOnceWithResultsThatAreTooLarge: the stream refuses single results. They become dead letters, and all others are stored.
func TestExactlyOnceWithResultsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	eachCommit(t, 1, func(t *testing.T, r *rig) {
		r.update("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1500 })
		const n = 300
		bad := []int{0, 100, 101, 299}
		for i := range n {
			m := &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%3), Data: document(i), Header: nats.Header{}}
			if slices.Contains(bad, i) {
				m.Header.Set("Long", strings.Repeat("x", 2000)) // results have the headers of their inputs
			}
			if _, err := r.js.PublishMsg(r.ctx(), m); err != nil {
				t.Fatal(err)
			}
		}
		r.work(streams.Config{BatchPayloads: 128})
		r.deliverAgain()
		r.work(streams.Config{BatchPayloads: 128})
		found, dead := r.stored("results.>"), r.deadLetters()
		for i := range n {
			seq, want := uint64(i+1), 0
			if slices.Contains(bad, i) {
				want = 1
			}
			if len(found[seq]) != 1-want || len(dead[seq]) != want {
				t.Fatalf("input %d has %d results and %d dead letters", seq, len(found[seq]), len(dead[seq]))
			}
		}
		for _, i := range bad {
			wantHeader(t, dead[uint64(i+1)][0].Headers(), results.HeaderReason, string(results.TooLarge))
		}
		r.wantInOrder()
	})
}

// TestExactlyOnceInOrderOfDeadLetters: payloads are given up before they are in a batch, and because an operator refuses them.
func TestExactlyOnceInOrderOfDeadLetters(t *testing.T) {
	t.Parallel()
	eachCommit(t, 1, func(t *testing.T, r *rig) {
		r.opts.Split.Framing = frame.None
		d := r.refuse(t)
		const n = 400
		bad := 0
		for i := range n {
			m := &nats.Msg{Subject: "ingest.web.0", Data: []byte(fmt.Sprint("payload ", i))}
			switch i % 40 {
			case 3, 17, 18:
				bad++
				m.Data = make([]byte, unfit)
			case 9, 19, 20:
				bad++
				m.Data = make([]byte, 40<<10) // more than a batch
			}
			if _, err := r.js.PublishMsg(r.ctx(), m); err != nil {
				t.Fatal(err)
			}
		}
		r.process(d, streams.Config{BatchPayloads: 32, BatchBytes: 32 << 10})
		r.deliverAgain()
		r.process(d, streams.Config{BatchPayloads: 32, BatchBytes: 32 << 10})
		order := map[uint64]uint64{} // by place in the stream: the input
		for input, messages := range r.deadLetters() {
			if len(messages) != 1 {
				t.Errorf("input %d has %d dead letters", input, len(messages))
			}
			meta, err := messages[0].Metadata()
			if err != nil {
				t.Fatal(err)
			}
			order[meta.Sequence.Stream] = input
		}
		last := uint64(0)
		for _, place := range slices.Sorted(maps.Keys(order)) {
			if order[place] < last {
				t.Errorf("the dead letter of input %d is stored after that of %d", order[place], last)
			}
			last = order[place]
		}
		if got := len(r.stored("results.>")); len(order) != bad || got != n-bad {
			t.Errorf("%d dead letters and %d results, want %d and %d", len(order), got, bad, n-bad)
		}
	})
}

// TestExactlyOnceWhenTheStreamChanges: somebody changes how the stream takes batches while a worker runs.
func TestExactlyOnceWhenTheStreamChanges(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 2)
	run := r.run(hostDevice(t), streams.Config{BatchPayloads: 64})
	published := 0
	for round := range 4 {
		r.publishFrom(published, published+500, document)
		published += 500
		until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
		r.update("RESULTS", func(c *jetstream.StreamConfig) { c.AllowBatchPublish, c.Duplicates = round%2 == 1, shortWindow })
		r.publishFrom(published, published+500, document)
		published += 500
		until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
	}
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantAll(published, document)
	r.wantInOrder()
	if !r.log.Has("the result stream's settings have changed") {
		t.Error("no lease ended because of the settings")
	}
}

// TestExactlyOnceWithoutIDs: results have their ids in another header, and the server remembers none.
func TestExactlyOnceWithoutIDs(t *testing.T) {
	t.Parallel()
	eachCommit(t, 2, func(t *testing.T, r *rig) {
		r.opts.ResultIDs = false
		const n = 500
		r.publish(n, unfitAt(100))
		for range 2 {
			run := r.run(openHost(t, pickyKernels()), streams.Config{BatchPayloads: 50})
			until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
			if err := run.drain(); err != nil {
				t.Fatal(err)
			}
			r.deliverAgain()
		}
		r.wantOnlyDead(n, unfitAt(100), []int{100})
		for _, stored := range []map[uint64][]jetstream.Msg{r.stored("results.>"), r.deadLetters()} {
			for input, messages := range stored {
				h := messages[0].Headers()
				if id := h.Get(jetstream.MsgIDHeader); id != "" || !strings.HasPrefix(h.Get(commit.HeaderID), fmt.Sprintf("INGEST:%d:", input)) {
					t.Fatalf("the message of input %d has the ids %q and %q", input, id, h.Get(commit.HeaderID))
				}
			}
		}
	})
}

// TestExactlyOnceWhileMarkersAge: a partition is quiet for longer than the result stream keeps messages.
func TestExactlyOnceWhileMarkersAge(t *testing.T) {
	t.Parallel()
	eachCommit(t, 1, func(t *testing.T, r *rig) {
		for _, name := range []string{"RESULTS", "RESULTS_DEADLETTER"} {
			r.update(name, func(c *jetstream.StreamConfig) { c.MaxAge = 12 * time.Second })
		}
		run := r.run(hostDevice(t), streams.Config{})
		r.publish(10, document)
		until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
		s, err := r.js.Stream(r.ctx(), "RESULTS")
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the results have expired", func() bool {
			_, err := s.GetLastMsgForSubject(r.ctx(), "results.web.0")
			return errors.Is(err, jetstream.ErrMsgNotFound)
		})
		if _, err := s.GetLastMsgForSubject(r.ctx(), "commits.RESULTS.INGEST.millrace.0"); err != nil {
			t.Errorf("the marker of a quiet partition: %v", err)
		}
		r.publishFrom(10, 20, document)
		until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
		if err := run.drain(); err != nil {
			t.Fatal(err)
		}
		if r.log.Has("the last commit marker is gone") {
			t.Error("the lease ended because its marker was gone")
		}
	})
}
