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
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// TestExactlyOnceOfFrames stores results in several parts, with some refused records. Connections break while results
// are stored. Afterwards everything is delivered again.
func TestExactlyOnceOfFrames(t *testing.T) {
	t.Parallel()
	eachCommit(t, 1, func(t *testing.T, r *rig) {
		r.opts.Format, r.opts.Split.Framing = operator.JSON, frame.NewlineDelimited
		r.opts.Split.MaxRecords, r.opts.Split.MaxBytes = 1<<16, 64<<20
		r.update("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 4000 })
		d := r.refuse(t)
		cutAfter := r.behindCutter()
		var inputs []framed
		for i := range uint64(30) {
			inputs = append(inputs, manyLines(i, 1+int(i)*3, int(i)))
		}
		r.publishFrames(inputs)
		run := r.run(d, streams.Options{BatchPayloads: 64})
		for round := range 6 {
			cutAfter(4 + 5*round)
		}
		until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
		if err := run.drain(); err != nil {
			t.Fatal(err)
		}
		r.wantFrames(inputs)
		r.workerURL = r.URL
		r.deliverAgain()
		r.process(d, streams.Options{BatchPayloads: 64})
		r.wantFrames(inputs)
	})
}

// TestExactlyOnceWithResultsThatAreTooLarge shows that results that the stream refuses become dead letters. All other
// results are stored.
func TestExactlyOnceWithResultsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	eachCommit(t, 1, func(t *testing.T, r *rig) {
		r.update("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1500 })
		const n = 120
		bad := []int{0, 60, 61, 119}
		r.Publish(0, n, func(i int) *nats.Msg {
			m := &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%3), Data: document(i), Header: nats.Header{}}
			if slices.Contains(bad, i) {
				m.Header.Set("Long", strings.Repeat("x", 2000)) // results have the headers of their inputs
			}
			return m
		})
		r.work(streams.Options{BatchPayloads: 48})
		r.deliverAgain()
		r.work(streams.Options{BatchPayloads: 48})
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

// TestExactlyOnceInOrderOfDeadLetters uses payloads that are too large for a batch and payloads that an operator
// refuses.
func TestExactlyOnceInOrderOfDeadLetters(t *testing.T) {
	t.Parallel()
	r := commitRig(t, 1)
	r.opts.Split.Framing = frame.None
	d := r.refuse(t)
	const n = 160
	bad := 0
	r.Publish(0, n, func(i int) *nats.Msg {
		m := &nats.Msg{Subject: "ingest.web.0", Data: []byte(fmt.Sprint("payload ", i))}
		switch i % 40 {
		case 3, 17, 18:
			bad++
			m.Data = make([]byte, unfit)
		case 9, 19, 20:
			bad++
			m.Data = make([]byte, 40<<10) // larger than a batch
		}
		return m
	})
	r.process(d, streams.Options{BatchPayloads: 32, BatchBytes: 32 << 10})
	r.deliverAgain()
	r.process(d, streams.Options{BatchPayloads: 32, BatchBytes: 32 << 10})
	order := map[uint64]uint64{} // input by sequence of the result stream
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
}

// TestExactlyOnceWhenTheStreamChanges enables and disables the stream's fast batches while a worker runs.
func TestExactlyOnceWhenTheStreamChanges(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 2)
	run := r.run(hostDevice(t), streams.Options{BatchPayloads: 16})
	published := 0
	more := func() {
		r.publishFrom(published, published+100, document)
		published += 100
		until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
	}
	for round := range 4 {
		more()
		r.update("RESULTS", func(c *jetstream.StreamConfig) { c.AllowBatchPublish, c.Duplicates = round%2 == 1, shortWindow })
		more()
	}
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantAll(published, document)
	r.wantInOrder()
	if !r.Log.Has("the result stream's settings have changed") {
		t.Error("no lease ended because of the settings")
	}
}

// TestExactlyOnceWithoutIDs keeps the ids of results in another header, so the server remembers none. Operators fail
// on some payloads.
func TestExactlyOnceWithoutIDs(t *testing.T) {
	t.Parallel()
	r := commitRig(t, 2)
	r.opts.ResultIDs = false
	const n = 300
	bad := []int{7, 57, 107, 157, 207, 257}
	r.publish(n, unfitAt(bad...))
	for range 2 {
		run := r.run(openHost(t, pickyKernels()), streams.Options{BatchPayloads: 25})
		until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
		if err := run.drain(); err != nil {
			t.Fatal(err)
		}
		r.deliverAgain()
	}
	r.wantOnlyDead(n, unfitAt(bad...), bad)
	for _, stored := range []map[uint64][]jetstream.Msg{r.stored("results.>"), r.deadLetters()} {
		for input, messages := range stored {
			h := messages[0].Headers()
			if id := h.Get(jetstream.MsgIDHeader); id != "" || !strings.HasPrefix(h.Get(commit.HeaderID), fmt.Sprintf("INGEST:%d:", input)) {
				t.Fatalf("the message of input %d has the ids %q and %q", input, id, h.Get(commit.HeaderID))
			}
		}
	}
}

// TestExactlyOnceWhileMarkersAge leaves a partition idle for longer than the result stream keeps messages.
func TestExactlyOnceWhileMarkersAge(t *testing.T) {
	t.Parallel()
	r := commitRig(t, 1)
	for _, name := range []string{"RESULTS", deadStream} {
		r.update(name, func(c *jetstream.StreamConfig) { c.MaxAge = 12 * time.Second })
	}
	run := r.run(hostDevice(t), streams.Options{})
	r.publish(10, document)
	until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
	s := r.Stream("RESULTS")
	until(t, "the results have expired", func() bool {
		_, err := s.GetLastMsgForSubject(r.Ctx(), "results.web.0")
		return errors.Is(err, jetstream.ErrMsgNotFound)
	})
	if _, err := s.GetLastMsgForSubject(r.Ctx(), "commits.RESULTS.INGEST.millrace.0"); err != nil {
		t.Errorf("the marker of a quiet partition: %v", err)
	}
	r.publishFrom(10, 20, document)
	until(t, "every input is acknowledged", func() bool { return r.unacknowledged() == 0 })
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	if r.Log.Has("the last commit marker is gone") {
		t.Error("the lease ended because its marker was gone")
	}
}
