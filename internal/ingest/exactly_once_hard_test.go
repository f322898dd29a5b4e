package ingest

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/frame"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/store"
	"millrace/internal/streams"
)

// TestExactlyOnceOfFrames stores results in several parts, with some refused records. Connections break while results
// are stored. Afterwards everything is delivered again.
func TestExactlyOnceOfFrames(t *testing.T) {
	eachCommit(t, 1, func(t *testing.T, r *rig) {
		r.opts.Split = frame.Splitter{Framing: frame.NewlineDelimited, MaxRecords: 1 << 16, MaxBytes: 64 << 20}
		r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 4000 })
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
		r.awaitSettled()
		run.finish()
		r.wantFrames(inputs)
		r.workerURL = r.URL
		r.deliverAgain()
		r.process(d, streams.Options{BatchPayloads: 64})
		r.wantFrames(inputs)
	})
}

// TestExactlyOnceInOrderOfDeadLetters uses payloads that are too large for a batch, payloads that an operator refuses,
// and payloads with results that the stream refuses. Dead letters are stored in the order of their inputs.
func TestExactlyOnceInOrderOfDeadLetters(t *testing.T) {
	eachCommit(t, 1, func(t *testing.T, r *rig) {
		r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1500 })
		d := r.refuse(t)
		const n = 160
		var tooLarge, refused []int
		late := map[uint64]bool{} // inputs whose result is too large, which the worker notices only when it stores results
		payload := func(i int) []byte {
			switch i % 40 {
			case 3, 17, 18:
				return make([]byte, unfit)
			case 9, 19, 20:
				return make([]byte, 40<<10) // larger than a batch
			}
			return fmt.Append(nil, "payload ", i)
		}
		r.Publish(0, n, func(i int) *nats.Msg {
			m := &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%3), Data: payload(i), Header: nats.Header{}}
			switch i % 40 {
			case 3, 17, 18:
				refused = append(refused, i)
			case 9, 19, 20:
				tooLarge = append(tooLarge, i)
			case 0, 21, 39:
				tooLarge = append(tooLarge, i)
				late[uint64(i+1)] = true
				m.Header.Set("Long", strings.Repeat("x", 2000)) // results have the headers of their inputs
			}
			return m
		})
		for range 2 {
			r.process(d, streams.Options{BatchPayloads: 32, BatchBytes: 32 << 10})
			r.deliverAgain()
		}
		r.wantApart(n, payload, nil, append(tooLarge, refused...)...)
		dead := r.deadLetters()
		for _, i := range refused {
			wantHeaders(t, dead[uint64(i+1)][0].Headers(), operatorError)
		}
		for _, i := range tooLarge {
			wantHeaders(t, dead[uint64(i+1)][0].Headers(), map[string]string{results.HeaderReason: string(results.TooLarge)})
		}
		maps.DeleteFunc(dead, func(input uint64, _ []jetstream.Msg) bool { return late[input] })
		r.wantStoredInOrder("the dead-letter stream", dead)
		r.wantInOrder()
	})
}

// TestExactlyOnceWhenTheStreamChanges enables and disables the stream's fast batches while a worker runs.
func TestExactlyOnceWhenTheStreamChanges(t *testing.T) {
	r := exclusiveRig(t, 2)
	run := r.run(hostDevice(t), streams.Options{BatchPayloads: 16})
	published := 0
	more := func() {
		r.publishFrom(published, published+100, document)
		published += 100
		r.awaitSettled()
	}
	for round := range 4 {
		more()
		r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.AllowBatchPublish, c.Duplicates = round%2 == 1, shortWindow })
		more()
	}
	run.finish()
	r.wantAll(published, document)
	r.wantInOrder()
	if !r.Log.Has("the result stream's settings have changed") {
		t.Error("no lease ended because of the settings")
	}
}

// TestExactlyOnceWithoutIDs keeps the ids of results in another header, so the server remembers none. Operators fail
// on some payloads.
func TestExactlyOnceWithoutIDs(t *testing.T) {
	r := commitRig(t, 2)
	r.opts.ResultIDs = false
	const n = 300
	bad := []int{7, 57, 107, 157, 207, 257}
	r.publish(n, unfitAt(bad...))
	for range 2 {
		r.process(openHost(t, pickyKernels()), streams.Options{BatchPayloads: 25})
		r.deliverAgain()
	}
	r.wantApart(n, unfitAt(bad...), operatorError, bad...)
	for _, stored := range []map[uint64][]jetstream.Msg{r.stored("results.>"), r.deadLetters()} {
		for input, messages := range stored {
			h := messages[0].Headers()
			if id := h.Get(jetstream.MsgIDHeader); id != "" || !strings.HasPrefix(h.Get(store.HeaderID), fmt.Sprintf("INGEST:%d:", input)) {
				t.Fatalf("the message of input %d has the ids %q and %q", input, id, h.Get(store.HeaderID))
			}
		}
	}
}

// TestExactlyOnceWhileMarkersAge leaves a partition idle for longer than the result stream keeps messages.
func TestExactlyOnceWhileMarkersAge(t *testing.T) {
	r := commitRig(t, 1)
	for _, name := range []string{"RESULTS", deadStream} {
		r.Change(name, func(c *jetstream.StreamConfig) { c.MaxAge = 12 * time.Second })
	}
	run := r.run(hostDevice(t), streams.Options{})
	r.publish(10, document)
	r.awaitSettled()
	s := r.Stream("RESULTS")
	until(t, "the results have expired", func() bool {
		_, err := s.GetLastMsgForSubject(r.Ctx(), "results.web.0")
		return errors.Is(err, jetstream.ErrMsgNotFound)
	})
	if _, err := s.GetLastMsgForSubject(r.Ctx(), "commits.RESULTS.INGEST.millrace.0"); err != nil {
		t.Errorf("the marker of a quiet partition: %v", err)
	}
	r.publishFrom(10, 20, document)
	r.awaitSettled()
	run.finish()
	if r.Log.Has("the last commit marker is gone") {
		t.Error("the lease ended because its marker was gone")
	}
}
