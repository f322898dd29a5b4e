package faults

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
	"millrace/internal/operator"
)

// TestOwnOperatorIsReplaced repeatedly kills the worker under load and installs a newer version of the operator before
// the next worker starts. A version isn't part of a result's id. So an input with a stored result keeps that result,
// and every other input gets the result of a newer version. Each input has exactly one result.
func TestOwnOperatorIsReplaced(t *testing.T) {
	eachMode(t, func(r *rig) {
		folder := r.moody("moody,crc32c")
		versions := times(10, 2)
		operators := map[string][]operator.Operator{}
		for v := 1; v <= versions; v++ {
			reference := t.TempDir()
			writeMoody(t, reference, strconv.Itoa(v), "true")
			operators[strconv.Itoa(v)] = findMoody(t, reference, "moody,crc32c")
		}
		r.serve(1)
		r.work(1)
		input := r.moods(1<<30, "")
		f := r.feed(endless, input)
		var last uint64 // sequence of the last input before the last version
		for v := 2; v <= versions; v++ {
			r.awaitResults(1 + r.rng.IntN(2000))
			r.workers[0].kill()
			writeMoody(t, folder, strconv.Itoa(v), "false")
			last = r.Stream(inputStream).CachedInfo().State.LastSeq
			r.workers = nil
			r.work(1)
		}
		r.awaitResults(1)
		f.finish()
		r.awaitFinished()
		r.retire()
		r.wantOneVersionEach(operators, last, strconv.Itoa(versions))
	})
}

// wantOneVersionEach checks that each input has exactly one result, from one of the versions. Inputs after the given
// sequence must have the result of the latest version.
func (r *rig) wantOneVersionEach(versions map[string][]operator.Operator, after uint64, latest string) {
	r.t.Helper()
	inputs, found, of := map[uint64][]byte{}, map[uint64]int{}, map[string]int{}
	r.read(inputStream, func(sequence uint64, m jetstream.Msg) { inputs[sequence] = bytes.Clone(m.Data()) })
	r.read(resultStream, func(_ uint64, m jetstream.Msg) {
		sequence, err := strconv.ParseUint(m.Headers().Get(results.HeaderSequence), 10, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		found[sequence]++
		for version, ops := range versions {
			if operator.JSON.Check(ops, inputs[sequence], m.Data()) != nil {
				continue
			}
			of[version]++
			if sequence > after && version != latest {
				r.t.Errorf("input %d was stored after version %s was installed, but its result has version %s", sequence, latest, version)
			}
		}
	})
	counted := 0
	for _, n := range of {
		counted += n
	}
	if len(inputs) == 0 || counted != len(inputs) || len(found) != len(inputs) {
		r.t.Errorf("of %d inputs %d have results, %d of them right, by version: %v", len(inputs), len(found), counted, of)
	}
	if len(of) < 2 || of[latest] == 0 {
		r.t.Errorf("results by version: %v, so the test shows nothing", of)
	}
	a := audit{messages: len(inputs), payloads: len(inputs), lost: len(inputs) - len(found), doubled: counted - len(found)}
	if c, ok := r.consumed(); ok {
		a.redelivered = max(c.delivered-len(inputs), 0)
	}
	r.enter("an operator of one's own is replaced by a newer version", len(versions)-1, a)
}
