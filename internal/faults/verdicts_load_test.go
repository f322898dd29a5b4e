package faults

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
)

// TestLoadVerdicts kills all workers while publishers store copies of inputs as fast as the server accepts them. Streams, partitions and states
// are the workers' defaults. The first input of each content, in the order of the stream, has no earlier duplicate, and all others name it.
func TestLoadVerdicts(t *testing.T) {
	need(t)
	t.Parallel()
	for _, servers := range []int{1, replicas} {
		t.Run(fmt.Sprintf("R%d", servers), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "exclusive")
			r.byDefault()
			r.set("MILLRACE_OPERATORS=neardup")
			r.serve(servers)
			r.work(2)
			n, kills := times(loaded, 12_000), times(10, 1)
			contents := n / 3 / loadSubjects * loadSubjects // so copies have the same subject
			l := r.stormOf(n, func(first int) func(i int) *nats.Msg {
				input := r.smallInputs(first)
				return func(i int) *nats.Msg {
					m := input(i)
					m.Data = r.smallInput((first + i) % contents)
					return m
				}
			})
			for range kills {
				r.awaitResults(n / (kills + 2))
				for i, w := range r.workers {
					w.kill()
					r.workers[i] = r.startWorker()
				}
			}
			l.wait()
			l.wantVerdicts(contents)
			r.t.Logf("SIGKILL of all workers, R%d: %d inputs of %d contents, %d times", servers, l.stored(), contents, kills)
		})
	}
}

// wantVerdicts waits until every input is settled. It checks that each input has exactly one result, with the right verdict. The content of the
// n-th input has the number n modulo contents.
func (o *onslaught) wantVerdicts(contents int) {
	o.r.t.Helper()
	type verdict struct {
		sequence, of uint64 // of is 0 for null
	}
	all, first := make([][]verdict, contents), make([]uint64, contents)
	o.wantOutcomes(o.end(), o.r.outputs(), func(n int, m jetstream.Msg) bool {
		var result struct {
			Neardup struct {
				DuplicateOf *struct{ Sequence, Record uint64 } `json:"duplicate_of"`
				Bands       int
				Also        []struct{}
			}
		}
		if err := json.Unmarshal(m.Data(), &result); err != nil {
			return false
		}
		v, r := verdict{sequence: o.r.number(m.Headers(), results.HeaderSequence)}, &result.Neardup
		if r.DuplicateOf != nil {
			v.of = r.DuplicateOf.Sequence
		}
		n %= contents
		all[n] = append(all[n], v)
		if first[n] == 0 || v.sequence < first[n] {
			first[n] = v.sequence
		}
		return len(r.Also) == 0 && (r.DuplicateOf == nil && r.Bands == 0 || r.DuplicateOf != nil && r.DuplicateOf.Record == 0 && r.Bands == 20)
	})
	wrong := 0
	for n, verdicts := range all {
		for _, v := range verdicts {
			want := first[n]
			if v.sequence == want {
				want = 0
			}
			if v.of != want {
				wrong++
			}
		}
	}
	if wrong > 0 {
		o.r.t.Errorf("%d verdicts are wrong", wrong)
	}
	o.r.wantSecondOpinion()
}
