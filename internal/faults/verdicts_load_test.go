package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
)

// TestLoadVerdicts kills all workers while publishers store copies of inputs as fast as the server accepts them. Streams, partitions and states are
// the workers' defaults. In stream order, the first input with each content has no earlier duplicate, and all other inputs with that content name it.
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
			l, contents := r.stormOfCopies(n)
			r.killAll(kills, n/(kills+2))
			l.wait()
			l.wantVerdicts(contents)
			r.t.Logf("SIGKILL of all workers, R%d: %d inputs of %d contents, %d times", servers, l.stored(), contents, kills)
		})
	}
}

// TestLoadVerdictsAfterDeviceLoss is like TestLoadVerdicts. The device of each worker fails at a random decision of its states, or at a random
// batch.
func TestLoadVerdictsAfterDeviceLoss(t *testing.T) {
	need(t)
	t.Parallel()
	r := newRig(t, "exclusive")
	r.failWorkers()
	r.byDefault()
	r.set("MILLRACE_OPERATORS=neardup")
	r.serve(1)
	r.work(2)
	r.retire()
	n, losses := times(loaded, 12_000), times(20, 2)
	l, contents := r.stormOfCopies(n)
	well := r.env
	for i := range losses {
		var failing []*worker
		for _, kind := range []string{"state", "lost"} {
			r.env = append(slices.Clone(well), fmt.Sprintf("FAILING_DEVICE=%s@%d", kind, 5+r.rng.IntN(20)))
			failing = append(failing, r.startWorker())
		}
		for _, w := range failing {
			r.wantLostDevice(w)
		}
		if c := r.mustConsumed(); l.stored() == n && c.waiting+c.unacknowledged == 0 {
			t.Fatalf("all inputs are settled after %d of %d losses, so the test shows little", i+1, losses)
		}
	}
	r.env = well
	r.work(2)
	l.wait()
	l.wantVerdicts(contents)
	t.Logf("loss of both devices, R1: %d inputs of %d contents, %d times", l.stored(), contents, losses)
}

// stormOfCopies starts to publish n inputs at full speed. The n-th input has the content with the number n modulo contents.
func (r *rig) stormOfCopies(n int) (l *onslaught, contents int) {
	r.t.Helper()
	contents = n / 3 / loadSubjects * loadSubjects // so copies have the same subject
	return r.stormOf(n, func(first int) func(i int) *nats.Msg {
		input := r.smallInputs(first)
		return func(i int) *nats.Msg {
			m := input(i)
			m.Data = r.smallInput((first + i) % contents)
			return m
		}
	}), contents
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
