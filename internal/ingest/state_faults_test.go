package ingest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// forgetLastCommit removes the log entries and the marker of the last commit of partition 0, as if the worker had died after it had stored
// the results of a fast batch. The last input is delivered again.
func (r *rig) forgetLastCommit() (input uint64) {
	r.Helper()
	s := r.Stream("RESULTS")
	markers := topology.CommitSubject(r.opts.CommitPrefix, "RESULTS", r.opts.Stream, r.opts.Consumer, 0)
	for _, subject := range []string{markers, markers + ".state"} {
		last, err := s.GetLastMsgForSubject(r.Ctx(), subject)
		check(r.TB, err)
		check(r.TB, s.DeleteMsg(r.Ctx(), last.Sequence))
	}
	input = r.Stream(r.opts.Stream).CachedInfo().State.LastSeq
	_, err := r.JS.ResetConsumerToSequence(r.Ctx(), r.opts.Stream, r.consumer(), input)
	check(r.TB, err)
	return input
}

// TestStoredResultsOfInputsThatAreGivenUp lets a worker die after it has stored a result and before its marker. The next one gives up the
// input or its record. Its result is stored already, so the state must have its records. Otherwise later records would have other verdicts.
func TestStoredResultsOfInputsThatAreGivenUp(t *testing.T) {
	t.Parallel()
	const trials = "floor=FLOOR until=INPUT deaths=4 trials=1" // and the next owner counts one more
	for name, c := range map[string]struct {
		annotations map[string]string // of the dead worker
		computes    bool              // whether the record on which the operator fails reaches the device
	}{
		"the message may break the device": {map[string]string{
			"millrace-owner": "dead", "millrace-alone": "INPUT", "millrace-caution": trials,
		}, false},
		"a record may break the device": {map[string]string{
			"millrace-owner": "dead", "millrace-alone": "INPUT STORED 1 1 2", "millrace-caution": trials,
		}, false},
		"an operator fails on a record": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := commitRig(t, 1)
			stateRig(t, r, 300)
			const n = 20
			r.publishFrom(0, n, nearDuplicates)
			r.process(hostDevice(t), streams.Options{BatchPayloads: 64})
			unfits := bytes.Repeat([]byte("unfit "), unfit)[:unfit]
			r.publishMsg(nil, bytes.Join([][]byte{[]byte("before"), unfits, []byte("behind"), nil}, []byte("\n")))
			r.process(hostDevice(t), streams.Options{BatchPayloads: 64})
			input := r.forgetLastCommit()
			fill := strings.NewReplacer("FLOOR", fmt.Sprint(input-1), "INPUT", fmt.Sprint(input), "STORED", fmt.Sprint(r.storedAt(input).UnixNano()))
			r.updateConsumer(func(config *jetstream.ConsumerConfig) {
				for key, value := range c.annotations {
					config.Metadata[key] = fill.Replace(value)
				}
			})
			r.publishMsg(nil, append(append([]byte("other\n"), unfits[1:]...), '\n'))
			r.publishFrom(n, 2*n, nearDuplicates)
			r.process(openHost(t, pickyKernels()), streams.Options{BatchPayloads: 64})
			r.wantVerdicts()
			if got := r.Log.Has("an operator failed on a batch"); got != c.computes {
				t.Errorf("the record was computed again: %t, want %t", got, c.computes)
			}
		})
	}
}

// TestADeadLetterOfDecidedRecords has an input whose result is too large, although the state has decided on its records. A worker dies
// after it has stored the dead letter. The next one gives the records to the state, and stores nothing else for them.
func TestADeadLetterOfDecidedRecords(t *testing.T) {
	eachCommit(t, 1, func(t *testing.T, r *rig) {
		stateRig(t, r, 300)
		r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 3000 })
		const n = 20
		r.publishFrom(0, n, nearDuplicates)
		r.process(hostDevice(t), streams.Options{BatchPayloads: 64})
		text := []byte("a text that comes again\nand another one, of which nothing is similar\n")
		r.publishMsg(nats.Header{"Long": {strings.Repeat("x", 3000)}}, text) // results have the headers of their inputs
		r.process(hostDevice(t), streams.Options{BatchPayloads: 64})
		dead := r.forgetLastCommit()
		r.publishMsg(nil, text)
		r.publishFrom(n, 2*n, nearDuplicates)
		r.process(hostDevice(t), streams.Options{BatchPayloads: 64})
		r.wantVerdicts(dead)
		if again := r.stored("results.>")[dead+1]; !bytes.Contains(again[0].Data(), fmt.Appendf(nil, `{"sequence":%d,"record":1}`, dead)) {
			t.Errorf("the state doesn't know the records of input %d: %s", dead, again[0].Data())
		}
	})
}
