package partitioned

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/pull"
)

// modelBudget is how long the test runs seeds, unless MILLRACE_MODEL_FOR sets another duration.
const modelBudget = 8 * time.Second

// TestModelOfTheLease runs one new seed after another until its time is over. With MILLRACE_MODEL_SEED it runs only that seed, with a
// trace. A seed doesn't fix the order in which goroutines run, so it may need several tries.
func TestModelOfTheLease(t *testing.T) {
	t.Parallel()
	lab := newModelLab(t)
	if text := os.Getenv("MILLRACE_MODEL_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		m := runLeaseModel(t, seed, lab)
		t.Log(strings.Join(m.trace, "\n"))
		t.Log(m.counts)
		return
	}
	budget, first := modelBudget, uint64(time.Now().UnixNano())
	if text := os.Getenv("MILLRACE_MODEL_FOR"); text != "" {
		var err error
		if budget, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seeds from %d on", first)
	counts, steps, runs := map[string]int{}, 0, 0
	for begun := time.Now(); time.Since(begun) < budget && !t.Failed(); runs++ {
		m := runLeaseModel(t, first+uint64(runs), lab)
		steps += m.steps
		for what, n := range m.counts {
			counts[what] += n
		}
	}
	for _, what := range modelMustHappen {
		if counts[what] == 0 && runs >= modelEnough {
			t.Errorf("in no run: %s", what)
		}
	}
	t.Logf("%d runs of %d steps: %v", runs, steps, counts)
}

// modelEnough is the number of runs after which every event must have happened.
const modelEnough = 500

// modelMustHappen lists the events that must have happened in that many runs. Otherwise the model proves nothing.
var modelMustHappen = []string{
	"delivered", "redelivered", "delivery lost", "read", "stored", "stored again", "result lost", "confirmation lost", "acknowledged",
	"acknowledgement ignored", "acknowledgement lost", "request lost", "answer lost", "late request", "crashed", "frozen", "cut",
	"device lost", "terminated", "batch failed", "pin expired", "pin dropped", "unpinned", "redelivery asked for", "server restarted", "reset by an administrator", "repaired", "read failed silently", "known",
	"lease begun", errPinLost.Error(), pull.ErrSilent.Error(),
	"killed by an input", "dead letter", "replaced with a payload alone",
	"replaced with a record alone", "record letter", "record condemned", "spread over batches", "operator failed", "broken frame",
	"committed", "commit refused", "batch cut", "batch proceeded", "message refused in a batch", "batch ended by another", "crashed during a batch", "frozen during a batch", "leader changed", "batch hit by a change of the leader", "read back", "settled by an earlier lease", commit.ErrFenced.Error(),
}

// runLeaseModel runs one seed and fails the test if an invariant is broken.
func runLeaseModel(t *testing.T, seed uint64, lab *modelLab) *leaseModel {
	t.Helper()
	m := newLeaseModel(seed, lab)
	synctest.Test(t, func(*testing.T) { m.run() })
	if m.broken != "" {
		t.Errorf("MILLRACE_MODEL_SEED=%d: %s\n%s", seed, m.broken, strings.Join(m.trace[max(len(m.trace)-modelTrace, 0):], "\n"))
	}
	return m
}

// modelTrace is the number of trace lines that a failure shows.
const modelTrace = 60
