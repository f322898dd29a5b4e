package faults

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// refusal is one way to make the result stream refuse results.
type refusal struct {
	name  string
	begin func(r *rig, c jetstream.StreamConfig)
	end   func(r *rig, c jetstream.StreamConfig) // c is the stream's previous configuration
	room  int                                    // number of results that the stream still accepts
	said  []string                               // texts that one line of the worker's log must contain
}

// notStored is the text of the worker's warning. The name of the stream and the server's reason follow the text.
const notStored = "results could not be stored and are published again; nothing is acknowledged meanwhile"

// roomWhenFull is the number of results that the stream accepts before it is full.
const roomWhenFull = 100

var refusals = []refusal{
	{
		name: "missing: no stream has the subjects",
		begin: func(r *rig, c jetstream.StreamConfig) {
			c.Subjects = []string{"elsewhere.>"}
			r.Create(c)
		},
		end:  func(r *rig, c jetstream.StreamConfig) { r.Create(c) },
		said: []string{notStored, `"stream":"RESULTS"`, "no response from stream"},
	},
	{
		name:  "deleted",
		begin: func(r *rig, c jetstream.StreamConfig) { r.Delete(c.Name) },
		end:   func(r *rig, c jetstream.StreamConfig) { r.Create(c) },
		said:  []string{notStored, `"stream":"RESULTS"`, "no response from stream"},
	},
	{
		name: "full",
		begin: func(r *rig, c jetstream.StreamConfig) {
			c.Discard, c.MaxMsgs = jetstream.DiscardNew, int64(r.Stream(c.Name).CachedInfo().State.Msgs)+roomWhenFull
			r.Create(c)
		},
		end:  func(r *rig, c jetstream.StreamConfig) { r.Create(c) },
		room: roomWhenFull,
		said: []string{notStored, `"stream":"RESULTS"`, "maximum messages exceeded"},
	},
}

// TestResultsRefused makes the result stream refuse everything for a while. The worker must log the refusal, keep its
// results and acknowledge nothing. It must continue once the stream accepts results.
func TestResultsRefused(t *testing.T) {
	need(t)
	t.Parallel()
	for _, refusal := range refusals {
		t.Run(refusal.name, func(t *testing.T) {
			eachMode(t, func(r *rig) {
				r.operators("crc32c,minhash?k=4&hashes=4")
				r.refuseResults(refusal, "result stream "+refusal.name, r.ordinary(), 500, 1500)
			})
		})
	}
}

// refuseResults feeds some inputs before the result stream refuses everything, and some inputs during the refusal.
func (r *rig) refuseResults(refusal refusal, fault string, l load, before, during int) {
	r.serve(1)
	r.work(1)
	r.feed(before, l.input).wait()
	r.until("the first inputs are settled", r.isFinished)
	first := uint64(before + 1)
	if refusal.name != "deleted" {
		first = 1 // a deleted stream loses its results
	}
	config := r.StreamConfig(resultStream)
	refusal.begin(r, config)
	r.feed(during, func(i int) *nats.Msg { return l.input(before + i) }).wait()
	r.until("the worker says what is wrong", func() bool {
		_, ok := r.workers[0].said(refusal.said...)
		return ok
	})
	// A consumer may receive an input shortly after the input is stored, so the test waits. An acknowledged input isn't
	// redelivered.
	r.until(fmt.Sprintf("of %d inputs, all but %d are unacknowledged: their results are not stored", during, refusal.room), func() bool {
		c, ok := r.consumed()
		return ok && c.unacknowledged+c.waiting >= during-refusal.room
	})
	refusal.end(r, config)
	if a := r.closeFrom(first, fault, 1); a.dead > 0 {
		r.t.Errorf("%d dead letters, but every input is valid", a.dead)
	}
}

// TestResultsTooLarge makes the result stream refuse every message because of its size. Retrying doesn't help, so each
// input becomes a dead letter. When the limit is lifted, results are stored again.
func TestResultsTooLarge(t *testing.T) {
	eachMode(t, func(r *rig) {
		const refused, taken = 500, 500
		r.serve(1)
		r.Create(jetstream.StreamConfig{Name: "DEADLETTERS", Subjects: []string{"deadletter.>"}})
		r.work(1)
		config := r.StreamConfig(resultStream)
		limited := config
		limited.MaxMsgSize = 64
		r.Create(limited)
		inputs := r.inputs()
		r.feed(refused, inputs).wait()
		r.until("every input is settled", r.isFinished)
		if _, ok := r.workers[0].said("payload dead-lettered", `"reason":"too_large"`, "its result cannot be stored", "message size exceeds maximum"); !ok {
			r.t.Error("the worker does not say that the result stream refuses results for their size")
		}
		r.Create(config)
		r.feed(taken, func(i int) *nats.Msg { return inputs(refused + i) }).wait()
		if a := r.close("result stream refuses by size", 1); a.dead != refused {
			r.t.Errorf("%d dead letters, want %d", a.dead, refused)
		}
	})
}
